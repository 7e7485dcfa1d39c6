"""The zoo's own application: commands of typer's beside those of the recipes."""

import recipes  # type: ignore[import-not-found]
import typer

import nemo_run as run
from nemo_run.cli.api import create_cli


@run.cli.entrypoint(namespace="garden")
def plant(what: str, rows: int = 1) -> None:
    """A command of another namespace, registered by the application itself."""
    recipes.note("plant", what=what, rows=rows)


app = create_cli(add_verbose_callback=False, nested_entrypoints_creation=False)
models = typer.Typer(help="Look at the models")


@models.command("list")
def list_models() -> None:
    typer.echo(
        " ".join(sorted(factory.__name__ for factory in run.cli.list_factories(recipes.Model)))
    )


@app.command()
def version(short: bool = False) -> None:
    """Say which version this is."""
    typer.echo("1.2" if short else "zoo 1.2")


app.add_typer(models, name="models")

if __name__ == "__main__":
    app()
