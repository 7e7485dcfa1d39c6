"""Found by every command that is started in this directory or below: commands and factories."""

import nemo_run as run


@run.cli.entrypoint(namespace="mine", skip_confirmation=True)
def greet(name: str = "you") -> None:
    """Greet somebody."""
    print("hello", name)
