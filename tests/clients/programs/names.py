"""Import what tools import, and say what is not there."""

import importlib
import json
import os
from pathlib import Path

NAMES = {
    "nemo_run.core.tunnel": ["LocalTunnel", "SSHTunnel"],
    "nemo_run.core.execution.slurm": ["SlurmJobDetails", "SlurmExecutor", "get_packaging_job_key"],
    "nemo_run.core.execution.docker": ["DockerExecutor"],
    "nemo_run.core.execution.launcher": ["SlurmTemplate", "Torchrun", "FaultTolerance"],
    "nemo_run.core.serialization.zlib_json": ["ZlibJSONSerializer"],
    "nemo_run.run.torchx_backend.packaging": ["_serialize"],
    "nemo_run.config": ["get_nemorun_home", "set_nemorun_home", "NEMORUN_HOME"],
    "nemo_run.cli.api": ["create_cli", "RunContext", "Entrypoint"],
    "nemo_run.cli.lazy": ["LazyEntrypoint"],
    # Their requirements name nemo_run, and count on this to come with it.
    "invoke": ["StreamWatcher"],
}

found = {}
for module, names in NAMES.items():
    for name in names:
        try:
            getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError) as error:
            found[f"{module}.{name}"] = str(error)
        else:
            found[f"{module}.{name}"] = ""
(Path(os.environ["OUT"]) / "names").write_text(json.dumps(found))
