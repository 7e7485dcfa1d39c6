"""Three groups of two scripts each, in containers; the third starts when the others have ended.

    python examples/docker_groups.py [IMAGE]

It needs a Docker engine, and an image with a shell. The tasks of a group reach each other by their
names.
"""

import sys
import tempfile
from pathlib import Path

import nemo_run as run


def pair(name: str) -> list[run.Script]:
    return [run.Script(inline=f"echo {name} {side} on $(hostname)") for side in ("left", "right")]


def main(image: str) -> None:
    executor = run.DockerExecutor(
        container_image=image,
        pull="missing",
        packager=run.Packager(),  # no code travels
        ulimits=["nofile=1024:2048"],
    )
    with run.Experiment("docker-groups", executor=executor, check=True) as exp:
        data = exp.add(pair("data"), name="data", tail_logs=True)
        model = exp.add(pair("model"), name="model", tail_logs=True)
        exp.add(pair("train"), name="train", tail_logs=True, dependencies=[data, model])
        exp.run(tail_logs=True)
    found = exp.status(return_dict=True) or {}
    print({name: job["status"].name for name, job in found.items()})


if __name__ == "__main__":
    # An example has no business in your home directory; leave this line out in your own.
    run.config.set_nemorun_home(Path(tempfile.mkdtemp(prefix="docker-groups-")))
    main(sys.argv[1] if len(sys.argv) > 1 else "ubuntu:24.04")
