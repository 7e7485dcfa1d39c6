"""An experiment as a command: it adds its jobs itself and leaves launching to its context.

    python examples/command_line/experiment.py --yes
    python examples/command_line/experiment.py "models[0].width=1" sequential=True --yes
    python examples/command_line/experiment.py ctx.executor=local --dryrun

The models are those of task.py, beside this file.
"""

from task import Model, train  # type: ignore[import-not-found]  # beside this one

import nemo_run as run

MODELS = [run.Config(Model, width=4), run.Config(Model, width=8)]


@run.cli.entrypoint(type="experiment")
def compare(
    ctx: run.cli.RunContext,
    models: list[run.Config[Model]] = MODELS,
    sequential: bool = False,
) -> None:
    """Train several models side by side."""
    with run.Experiment("compare", executor=ctx.executor, check=True) as experiment:
        for number, model in enumerate(models):
            task = run.Partial(train, model=model)
            experiment.add(task, name=f"model-{number}", tail_logs=True)
        ctx.launch(experiment, sequential=sequential)


if __name__ == "__main__":
    run.cli.main(compare, default_executor=run.Config(run.LocalExecutor))
