"""A Docker engine to try things on: ``python -m tests.integration.docker up DIR``."""

from __future__ import annotations

import argparse
from pathlib import Path

from tests.integration.docker import images
from tests.integration.docker.engine import DockerEngine


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.integration.docker", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    up = commands.add_parser("up", help="start an engine whose files go to DIR")
    up.add_argument("dir", type=Path)
    down = commands.add_parser("down", help="stop it, and all containers; the files stay")
    down.add_argument("dir", type=Path)
    chosen = parser.parse_args()
    engine = DockerEngine(chosen.dir.absolute())
    if chosen.command == "down":
        engine.stop()
        return
    engine.directory.mkdir(parents=True, exist_ok=True)
    try:
        engine.start()
        with engine.client() as client:
            images.load(client)
    except BaseException:
        engine.stop()
        raise
    print(f"export DOCKER_HOST=unix://{engine.socket}")
    print(f"# It has the images {images.PYTHON} and {images.PLAIN}.")


if __name__ == "__main__":
    main()
