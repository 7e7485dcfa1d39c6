"""Commands of an installed package: `pip install examples/command_line/lab`, then `nemorun lab`.

nemorun lab measure times=2 --yes
nemorun lab rooms clean
"""

import nemo_run as run


@run.cli.entrypoint(namespace="lab")
def measure(times: int = 1) -> None:
    """Measure something."""
    print(f"measured {times} times")


@run.cli.entrypoint(namespace="lab.rooms", enable_executor=False)
def clean(room: str = "all") -> None:
    """Clean a room; runs here and asks nothing."""
    print(f"cleaned {room}")
