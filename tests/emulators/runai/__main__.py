"""Try the DGX Cloud executor without an account: ``python -m tests.emulators.runai``."""

from __future__ import annotations

import argparse
import signal
import tempfile
from pathlib import Path

from tests.emulators.runai import CLIENT_ID, CLIENT_SECRET, RunaiEmulator


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="of loopback; 0 for any")
    parser.add_argument("--directory", type=Path, help="for volumes; a temporary one by default")
    options = parser.parse_args()
    directory = options.directory or Path(tempfile.mkdtemp(prefix="runai-emulator-"))
    emulator = RunaiEmulator(directory, port=options.port)
    print("# Run:ai is up. In another terminal:")
    print(f"export RUNAI_SECRET={CLIENT_SECRET}")
    print("# and in Python:")
    print(
        "executor = run.DGXCloudExecutor(\n"
        f"    base_url={emulator.base_url!r},\n"
        f"    kube_apiserver_url={emulator.kube_url!r},\n"
        f"    client_id={CLIENT_ID!r},\n"
        "    client_secret='env:RUNAI_SECRET',\n"
        "    project_name='team-a',\n"
        "    container_image='any:1',\n"
        "    pvcs=[{'name': 'work', 'path': '/workspace', 'existingPvc': True, "
        "'claimName': 'work'}],\n"
        "    pvc_nemo_run_dir='/workspace/nemo_run',\n"
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
