"""Give one parser odd input for some time, led by which lines it reaches: `make fuzz`.

python -m tests.hostile.fuzz PARSER SECONDS
"""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import atheris  # type: ignore[import-untyped]  # only there in the environment of `make fuzz`

with atheris.instrument_imports(include=["nemo_run"]):
    from tests.hostile.parsers import PARSERS

POD = {
    "metadata": {"name": "a", "uid": "1", "labels": {"nemo-run/tag": "t"}},
    "spec": {"restartPolicy": "Never", "trainer": {"numNodes": 1}},
    "status": {
        "phase": "Failed",
        "containerStatuses": [
            {
                "name": "node",
                "state": {
                    "terminated": {
                        "exitCode": 1,
                        "message": "nemo_run: exit_code=1 attempts=1 lines=1",
                        "finishedAt": "2026-01-01T00:00:01Z",
                    }
                },
            }
        ],
        "conditions": [{"type": "Complete", "status": "True"}],
        "jobsStatus": [{"name": "node", "active": 1}],
    },
}
CONTAINER = {
    "Id": "a",
    "Name": "/a",
    "Config": {"Labels": {"nemo-run/id": "j"}},
    "State": {"Status": "exited", "ExitCode": 1, "StartedAt": "2026-01-01T00:00:01Z"},
}
SEEDS = [
    b'{"app_id": "a", "attempts": [{"number": 1, "exit_code": 1, "logs": [["a", 1]]}], "format": '
    b'[1, 0], "job_dir": "/x", "last_seen_at": 1.5, "parts": [{"number": 1, "state": "FAILED"}], '
    b'"ref": {"native_id": "1", "where": {"a": "b"}}, "roles": [["job", 1]], "scheduler": '
    b'"local_persistent", "state": "FAILED", "submitted_at": 1.0, "tag": "nr-1"}',
    b'{"members": [{"state": "FAILED", "message": "x", "exit_code": 1, "handle": "a://b/c"}]}',
    b'{"root": {"type": "ref", "key": "a"}, "objects": {"a": {"type": {"module": "builtins", '
    b'"name": "list"}, "items": [["", {"type": "leaf", "value": 1}]], "metadata": []}}}',
    b"12_3|FAILED|1:9|1794784155|1794784160|node1|None\n12_[1-9%2]|PENDING|0|0|0|0|n|Priority",
    b"exit 0 0 0 1794784155 1794784160\n@ begin\n@ done 0\n@ file 0 0 4 log\nZm9vCg==\n",
    b" 0 with exit code 7]\n: exit_code=7 attempts=1 lines=3",
    b"2026-01-01T00:00:01.5Z one\n2026-01-01T00:00:02Z \x1b[31mtwo\x1b[0m\r\x9b2J",
    b"\1\0\0\0\0\0\0\3abc\2\0\0\0\0\0\0\0",
    b"\0\0\0\x0de\0\0\0\1\0\0\0\4name",
    json.dumps(POD).encode(),
    json.dumps(CONTAINER).encode(),
    b"a: {_target_: os.system, _args_: [x]}\nb = 1\n[c]\n",
]


def main(name: str, seconds: str) -> None:
    from tests.hostile.tars import attacks

    with tempfile.TemporaryDirectory() as corpus:
        seeds = SEEDS if name != "archives" else list(attacks("/x/y").values())
        for number, seed in enumerate(seeds):
            Path(corpus, str(number)).write_bytes(seed)
        limits = [f"-max_total_time={seconds}", "-timeout=20", "-rss_limit_mb=4096"]
        options = [sys.argv[0], *limits, "-max_len=20000", "-print_final_stats=1", corpus]
        logging.disable()
        atheris.Setup(options, PARSERS[name])
        atheris.Fuzz()  # ends the process, and removes nothing


def each(seconds: str) -> int:
    """Fuzz all parsers, one after the other; return how many broke."""
    broken = 0
    for name in PARSERS:
        argv = [sys.executable, "-m", "tests.hostile.fuzz", name, seconds]
        with tempfile.TemporaryDirectory() as scratch:
            env = {**os.environ, "TMPDIR": scratch}
            done = subprocess.run(
                argv, env=env, capture_output=True, text=True, errors="replace", check=False
            )
        runs = re.search(r"stat::number_of_executed_units: *([0-9]+)", done.stderr)
        print(
            f"{name}: {runs[1] if runs else 'no'} inputs, exit code {done.returncode}", flush=True
        )
        if done.returncode:
            broken += 1
            print(done.stderr[-4000:], flush=True)
    return broken


if __name__ == "__main__":
    if sys.argv[1] == "all":
        sys.exit(each(sys.argv[2]))
    main(*sys.argv[1:3])
