"""Arguments inside arguments: lists, two of one class, and one that may be left out.

    python examples/command_line/nested.py left.width=1 right.width=2 --yes
    python examples/command_line/nested.py "more[0].width=5" "more[1].depth+=1" extra.depth=9 --yes

The models are those of task.py, beside this file.
"""

from task import Model  # type: ignore[import-not-found]  # beside this one

import nemo_run as run


def compare(
    left: Model = Model(width=10),  # noqa: B008 - never changed, only started from
    right: Model = Model(width=20),  # noqa: B008
    more: list[Model] = [Model(width=30), Model(width=40)],  # noqa: B006, B008
    extra: Model | None = None,
) -> None:
    """Compare models."""
    print("left", left, "right", right)
    print("more", more, "extra", extra)


if __name__ == "__main__":
    run.cli.main(compare)
