"""Run ``fit`` with one command line after the other in one process, each given as a JSON list.

A process for each wrong word would take minutes. Prints how each ended, as JSON.
"""

import contextlib
import io
import json
import sys

import fit as script  # type: ignore[import-not-found]  # a script beside this one

import nemo_run as run
from nemo_run.cli import api

for line in sys.stdin.readlines():
    sys.argv = ["fit.py", *json.loads(line)]
    api.NEMORUN_SKIP_CONFIRMATION = None
    sys.stdin = io.StringIO()
    out, err, code = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            run.cli.main(script.fit)
        except SystemExit as end:
            code = int(end.code or 0)
    print(json.dumps([code, out.getvalue(), err.getvalue()]))
