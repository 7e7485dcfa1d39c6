"""Wait for an experiment that another process has launched, and say how its jobs ended."""

import json
import sys
from pathlib import Path

from clusters import out, wait  # type: ignore[import-not-found]

Path(out("watched")).write_text(json.dumps(wait(sys.argv[1])))
