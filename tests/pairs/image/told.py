"""A script of the user's."""

import sys

from lab.steps import tell  # type: ignore[import-not-found]

if __name__ == "__main__":
    tell(sys.argv[1], sys.argv[2:])
