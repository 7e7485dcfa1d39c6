"""What is said of a command is true, however often the connection is cut."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.integration.slurm.chaos import ChaosProxy
from tests.integration.slurm.sshd import ALIAS, Sshd

from nemo_run.core.tunnel.client import SSHTunnel
from nemo_run.exceptions import BackendUnavailableError, ConnectionLostError

pytestmark = pytest.mark.slow

COMMANDS = 160
SEED = 20_26


def test_a_command_ran_once_or_not_at_all_and_we_know_which(
    sshd: Sshd, proxy: ChaosProxy, tmp_path: Path
) -> None:
    tunnel = SSHTunnel(host=ALIAS, user=sshd.user, port=proxy.port, job_dir=str(tmp_path))
    dice = random.Random(SEED)
    over = threading.Event()

    finished = threading.Semaphore(0)

    def cut_now_and_then() -> None:
        # By commands, not by the clock: a slow machine is to get as far as a fast one.
        while not over.is_set():
            for _ in range(dice.randrange(2, 12)):
                finished.acquire(timeout=1)
            time.sleep(dice.uniform(0.0, 0.03))
            if dice.random() < 0.3:
                with proxy.outage():
                    time.sleep(dice.uniform(0.0, 0.1))
            else:
                proxy.cut()

    def attempt(n: int) -> str:
        try:
            result = tunnel.run(f"echo {n} >> {tmp_path}/ran; echo done {n}")
        except ConnectionLostError:
            return "may have run"
        except BackendUnavailableError:
            return "was not run"
        finally:
            finished.release()
        assert result.stdout == f"done {n}\n"
        return "ran"

    chaos = threading.Thread(target=cut_now_and_then)
    chaos.start()
    try:
        with ThreadPoolExecutor(6) as pool:
            outcomes = list(pool.map(attempt, range(COMMANDS)))
    finally:
        over.set()
        chaos.join()
    # Commands that were cut off may still be on their way to the file.
    assert tunnel.run("sleep 1; echo calm").stdout == "calm\n"

    ran = Counter(map(int, (tmp_path / "ran").read_text().split()))
    for n, outcome in enumerate(outcomes):
        expected = {"ran": {1}, "was not run": {0}, "may have run": {0, 1}}[outcome]
        assert ran[n] in expected, f"command {n} {outcome}, and did {ran[n]} times"
    assert set(outcomes) >= {"ran", "may have run"}, "nothing was cut"
