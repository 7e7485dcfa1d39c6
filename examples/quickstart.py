"""Train a small neural network at several learning rates, side by side, and pick the best.

    python examples/quickstart.py

Needs nothing but nemo_run. The network is real: two inputs, twelve hidden units, trained by
backpropagation in plain Python to tell two interlocked half moons apart.
"""

import json
import math
import random
import sys
import tempfile
from pathlib import Path

import nemo_run as run

LEARNING_RATES = (0.003, 0.03, 0.3, 30.0)
HIDDEN = 12


def moons(points: int, seed: int) -> list[tuple[float, float, int]]:
    """Return noisy points on two half circles, each with the number of its moon."""
    rng = random.Random(seed)
    data = []
    for _ in range(points):
        moon, angle = rng.randrange(2), rng.uniform(0, math.pi)
        x, y = math.cos(angle), math.sin(angle)
        if moon:
            x, y = 1 - x, 0.5 - y
        data.append((x + rng.gauss(0, 0.15), y + rng.gauss(0, 0.15), moon))
    return data


def predict(net: list[list[float]], x: float, y: float) -> tuple[float, list[float]]:
    """Return the probability of moon 1, and the hidden activations."""
    hidden = [math.tanh(a * x + b * y + c) for a, b, c, _ in net[:-1]]
    score = sum(h * unit[3] for h, unit in zip(hidden, net, strict=False)) + net[-1][0]
    return 1 / (1 + math.exp(-max(-60.0, min(60.0, score)))), hidden


def train(learning_rate: float, out: str, epochs: int = 60) -> None:
    """Fit the network by stochastic gradient descent and write its weights to ``out``."""
    rng = random.Random(0)
    data = moons(600, seed=1)
    net = [[rng.gauss(0, 1) for _ in range(4)] for _ in range(HIDDEN)] + [[0.0]]
    for epoch in range(1, epochs + 1):
        rng.shuffle(data)
        loss = 0.0
        for x, y, moon in data:
            p, hidden = predict(net, x, y)
            loss -= math.log(max(1e-12, p if moon else 1 - p))
            step = learning_rate * (p - moon)
            net[-1][0] -= step
            for unit, h in zip(net, hidden, strict=False):
                back = step * unit[3] * (1 - h * h)
                unit[0] -= back * x
                unit[1] -= back * y
                unit[2] -= back
                unit[3] -= step * h
        if epoch % 10 == 0:
            print(f"epoch {epoch:3}  loss {loss / len(data):.4f}")
    Path(out).write_text(json.dumps({"learning_rate": learning_rate, "net": net}))


def evaluate(results: list[str], best: str) -> None:
    """Compare the trained networks on points none of them has seen; keep the best."""
    held_out = moons(2000, seed=2)
    scored = []
    for result in results:
        model = json.loads(Path(result).read_text())
        right = sum((predict(model["net"], x, y)[0] > 0.5) == moon for x, y, moon in held_out)
        scored.append((right / len(held_out), model["learning_rate"], result))
        print(f"learning rate {model['learning_rate']:<6} accuracy {right / len(held_out):.1%}")
    accuracy, learning_rate, result = max(scored)
    print(f"best: learning rate {learning_rate} with {accuracy:.1%} on held-out data")
    Path(best).write_text(Path(result).read_text())


def main() -> None:
    out = Path(tempfile.mkdtemp(prefix="quickstart-"))
    files = [str(out / f"lr-{rate}.json") for rate in LEARNING_RATES]

    with run.Experiment("quickstart", executor=run.LocalExecutor(), check=True) as exp:
        trained = [
            exp.add(run.Partial(train, learning_rate=rate, out=file), name=f"train-lr-{rate}")
            for rate, file in zip(LEARNING_RATES, files, strict=True)
        ]
        exp.add(
            run.Partial(evaluate, results=files, best=str(out / "best.json")),
            name="evaluate",
            dependencies=trained,
        )
        exp.run()

    print("What the evaluation found:", flush=True)
    exp.logs("evaluate")
    print(f"The best network is in {out / 'best.json'}")
    print(f"Everything about this run: {Path(exp.jobs[0].executor.job_dir).parent}")


if __name__ == "__main__":
    try:
        main()
    except run.exceptions.JobFailedError as err:
        sys.exit(f"quickstart: {err}")
