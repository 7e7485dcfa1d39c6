"""What can travel to where a task runs, and what is refused before anything is submitted.

python examples/storing.py
"""

import threading
from dataclasses import dataclass
from pathlib import Path

import nemo_run as run
from nemo_run.core.serialization.zlib_json import ZlibJSONSerializer


@dataclass
class Settings:
    rate: float = 0.1


def fit(settings: Settings, data: Path) -> None:
    print(f"{settings} on {data}")


def main() -> None:
    serializer = ZlibJSONSerializer()

    # An instance of a dataclass is stored as the config of one; a path travels either way.
    task = run.Partial(fit, settings=Settings(rate=0.5), data=run.Config(Path, "/data"))
    print("stored as:", type(task.settings).__name__)
    again = serializer.deserialize(serializer.serialize(task))
    print("the same task:", again == task)
    run.run(again, direct=True)

    task.data = Path("/data")
    print("the same path:", serializer.deserialize(serializer.serialize(task)).data)

    # What exists in this process only cannot travel; its place in the task is named.
    task.settings.rate = threading.Lock()
    try:
        serializer.serialize(task)
    except run.exceptions.NemoRunError as err:
        print("refused:", str(err).splitlines()[0])


if __name__ == "__main__":
    main()
