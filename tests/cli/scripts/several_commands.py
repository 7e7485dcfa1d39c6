"""Run one command line of ``nemorun`` after the other in one process; see several.py."""

import contextlib
import io
import json
import sys

from nemo_run.cli.commands.application import main

for line in sys.stdin.readlines():
    sys.stdin = io.StringIO()
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(json.loads(line))
        except SystemExit as end:
            code = int(end.code or 0)
    print(json.dumps([code, out.getvalue(), err.getvalue()]))
