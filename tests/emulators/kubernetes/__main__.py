"""Try the Kubeflow executor without a cluster: ``python -m tests.emulators.kubernetes``."""

from __future__ import annotations

import argparse
import signal
import tempfile
from pathlib import Path

from tests.emulators.kubernetes import KubernetesEmulator


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="of loopback; 0 for any")
    parser.add_argument("--directory", type=Path, help="for volumes; a temporary one by default")
    options = parser.parse_args()
    directory = options.directory or Path(tempfile.mkdtemp(prefix="kubernetes-emulator-"))
    emulator = KubernetesEmulator(directory, port=options.port)
    print("# Kubernetes is up. In another terminal:")
    print(f"export KUBECONFIG={emulator.kubeconfig}")
    print("# and in Python:")
    print(
        "executor = run.KubeflowExecutor(\n"
        "    image='any:1',\n"
        "    workdir_pvc='work',\n"
        "    workdir_pvc_path='/workspace',\n"
        ")"
    )
    print(f"# Volumes are in {directory / 'volumes'}. Ctrl-C ends it and its jobs.", flush=True)
    for number in (signal.SIGINT, signal.SIGTERM):  # also where a shell has us ignore them
        signal.signal(number, signal.default_int_handler)
    try:
        signal.pause()
    except KeyboardInterrupt:
        emulator.close()


if __name__ == "__main__":
    main()
