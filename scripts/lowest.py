"""Print the lowest version of each dependency that `pyproject.toml` allows, as constraints for pip.

    python scripts/lowest.py >constraints

Only what we depend on ourselves is that old; what it depends on in turn is as new as it may be.
"""

from __future__ import annotations

from importlib.metadata import requires

from packaging.requirements import Requirement


def main() -> None:
    for item in map(Requirement, requires("nemo_run") or ()):
        if item.marker is None or item.marker.evaluate({"extra": ""}):
            (lowest,) = (one.version for one in item.specifier if one.operator == ">=")
            print(f"{item.name}=={lowest}")


if __name__ == "__main__":
    main()
