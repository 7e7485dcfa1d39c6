"""Arguments: ANSWER time REPEATS | ANSWER write FILE | ANSWER read FILE."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks.targets import training
from benchmarks.workers._answer import answer
from nemo_run.core.serialization.zlib_json import ZlibJSONSerializer


def timed(call: Callable[[], Any], repeats: int) -> list[float]:
    seconds = []
    for _ in range(repeats):
        begin = perf_counter()
        call()
        seconds.append(perf_counter() - begin)
    return seconds


def main() -> None:
    action, argument = sys.argv[2:]
    serializer = ZlibJSONSerializer()
    config = training()
    if action == "write":
        Path(argument).write_text(serializer.serialize(config))
        answer({})
    elif action == "read":
        read = serializer.deserialize(Path(argument).read_text())
        # Both ways round: an __eq__ may look at its own side only.
        same = bool(read == config and config == read)
        answer({"same": same and read.optimizer is read.callbacks[0].optimizer})
    else:
        repeats, text, other = int(argument), serializer.serialize(config), training()
        answer(
            {
                "serialise": timed(lambda: serializer.serialize(config), repeats),
                "deserialise": timed(lambda: serializer.deserialize(text), repeats),
                "compare": timed(lambda: config == other, repeats),
                "clone": timed(config.clone, repeats),
            }
        )


if __name__ == "__main__":
    main()
