"""Train with torchrun on Kubernetes, as a TrainJob of Kubeflow that ends when this program does.

    python examples/kubeflow.py --image nvcr.io/nvidia/pytorch:25.06-py3 --claim my-volume

The cluster is that of the current context, as for kubectl. Ctrl-C, or a TERM as a CI system sends
it, deletes the TrainJob and returns when its pods are gone.
"""

import argparse
import os
import signal
import sys
import tempfile
from pathlib import Path
from types import FrameType

import nemo_run as run

TRAIN = """\
import os, sys, time
print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], flush=True)
time.sleep(float(sys.argv[1]))
"""


def parse(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train on Kubernetes.")
    parser.add_argument("--image", required=True, help="must have torchrun and bash")
    parser.add_argument("--claim", required=True, help="a PersistentVolumeClaim for files")
    parser.add_argument("--namespace", default="default")
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--processes", type=int, default=2, help="on each node")
    parser.add_argument("--seconds", type=float, default=1, help="how long the training takes")
    parser.add_argument("--port", type=int, default=29500, help="where the nodes meet")
    return parser.parse_args(words)


def make_executor(options: argparse.Namespace) -> run.KubeflowExecutor:
    return run.KubeflowExecutor(
        image=options.image,
        namespace=options.namespace,
        num_nodes=options.nodes,
        nprocs_per_node=options.processes,
        cpu_requests="1",
        memory_requests="1Gi",
        volumes=[{"name": "scratch", "emptyDir": {}}],
        volume_mounts=[{"name": "scratch", "mountPath": "/scratch"}],
        tolerations=[{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
        workdir_pvc=options.claim,
        workdir_pvc_path="/workspace",
        launcher=run.Torchrun(rdzv_port=options.port),
        packager=run.PatternPackager(include_pattern="train.py", relative_path=str(Path.cwd())),
    )


def main(words: list[str]) -> None:
    options = parse(words)
    executor = make_executor(options)
    with run.Experiment("kubeflow", executor=executor, check=True) as exp:
        train = run.Script("train.py", entrypoint="python", args=[str(options.seconds)])
        exp.add(train, name="train", tail_logs=True)

        def end(number: int, frame: FrameType | None) -> None:
            for job in exp.jobs:
                gone = job.handle and executor.cancel(job.handle, wait=True)
                print(f"{job.id} was deleted: {gone}", flush=True)
            sys.exit(128 + number)

        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, end)
        exp.run()


if __name__ == "__main__":
    # An example has no business in your directories; leave these lines out in your own.
    os.chdir(tempfile.mkdtemp(prefix="kubeflow-"))
    Path("train.py").write_text(TRAIN)
    run.config.set_nemorun_home(Path("home").absolute())
    main(sys.argv[1:])
