"""Train step by step from a checkpoint, until all steps are done or the time is over."""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

checkpoint, total, steps_a_slice = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
state: dict[str, Any] = {"step": 0, "slices": []}
if checkpoint.exists():
    state = json.loads(checkpoint.read_text())
print("starting from step", state["step"], flush=True)
if state["step"] >= total:
    sys.exit(0)
begin = state["step"]
state["slices"].append({"job": os.environ["SLURM_JOB_ID"], "from": begin})
while state["step"] < total:
    if steps_a_slice and state["step"] - begin >= steps_a_slice:
        sys.exit("out of time")
    time.sleep(1 if not steps_a_slice else 0.05)
    state["step"] += 1
    part = checkpoint.with_name(f"{checkpoint.name}.part")
    part.write_text(json.dumps(state))
    part.replace(checkpoint)
print("trained", flush=True)
