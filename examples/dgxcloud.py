"""Train with torchrun on DGX Cloud (Run:ai), from a machine that shares no files with it.

    RUNAI_SECRET=... python examples/dgxcloud.py https://.../api/v1 https://kube.... my-project

The home directory of nemo_run is on the volume that jobs mount; what a job needs is moved there.
"""

import os
import sys
import tempfile
from pathlib import Path

import nemo_run as run

TRAIN = """\
import os
# In one piece: print() would write words and line end one by one here, and torchrun, which prints
# what it finds in the files of the ranks, might put another rank's words between them.
os.write(1, f"rank {os.environ['RANK']} of {os.environ['WORLD_SIZE']}\\n".encode())
"""


def main(base_url: str, kube_url: str, project: str) -> None:
    executor = run.DGXCloudExecutor(
        base_url=base_url,
        kube_apiserver_url=kube_url,
        client_id=os.environ.get("RUNAI_CLIENT", "nemo-run"),
        client_secret="env:RUNAI_SECRET",  # where it is, and not what it is
        project_name=project,
        container_image="nvcr.io/nvidia/pytorch:25.06-py3",
        nprocs_per_node=2,
        pvcs=[{"name": "work", "path": "/workspace", "existingPvc": True, "claimName": "work"}],
        pvc_nemo_run_dir="/workspace/nemo_run",
        launcher="torchrun",
        packager=run.PatternPackager(include_pattern="train.py", relative_path=str(Path.cwd())),
    )
    with run.Experiment("dgxcloud", executor=executor, check=True) as exp:
        exp.add(run.Script("train.py", entrypoint="python"), name="train", tail_logs=True)
        exp.run(sequential=True)


if __name__ == "__main__":
    # An example has no business in your directories; leave these lines out in your own.
    os.chdir(tempfile.mkdtemp(prefix="dgxcloud-"))
    Path("train.py").write_text(TRAIN)
    run.config.set_nemorun_home(Path("home").absolute())
    main(*sys.argv[1:])
