"""Try the Lepton executor without an account: ``python -m tests.emulators.lepton``."""

from __future__ import annotations

import argparse
import contextlib
import signal
import tempfile
from pathlib import Path

from tests.emulators.lepton import LeptonEmulator


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="of loopback; 0 for any")
    parser.add_argument("--directory", type=Path, help="for volumes; a temporary one by default")
    options = parser.parse_args()
    directory = options.directory or Path(tempfile.mkdtemp(prefix="lepton-emulator-"))
    for number in (signal.SIGINT, signal.SIGTERM):  # a shell's background has the first ignored
        signal.signal(number, signal.default_int_handler)
    emulator = LeptonEmulator(directory, port=options.port)
    print("# A workspace is up. In another terminal, to point leptonai at it:")
    for name, value in emulator.environment.items():
        print(f"export {name}={value}")
    print(f"# Volumes are in {directory / 'volumes'}. Ctrl-C ends it and its jobs.", flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        signal.pause()
    emulator.close()


if __name__ == "__main__":
    main()
