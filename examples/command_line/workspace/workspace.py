"""Found by every command that is started in this directory or below: commands and factories."""

import nemo_run as run


@run.cli.entrypoint(namespace="mine", skip_confirmation=True)
def greet(name: str = "you") -> None:
    """Greet somebody."""
    print("hello", name)


@run.cli.factory
def patient() -> run.Config[run.LocalExecutor]:
    """This machine, with some tries; for every script that is started here."""
    return run.Config(run.LocalExecutor, retries=3)
