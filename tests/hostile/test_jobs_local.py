"""A local job that overwrites its own state: questions are answered or refused, and none hangs.

It is a process of the same user, so there is nothing to protect from it but the launcher's time.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from tests.contract.backends import LocalCluster
from tests.hostile.attacks import PLANTS, plant
from tests.integration.launching import wait_for

from nemo_run.exceptions import NemoRunError

pytestmark = [pytest.mark.slow, pytest.mark.timeout(30)]

SECRET = "a file of the user's\n"


@pytest.mark.parametrize("kind", PLANTS)
def test_no_question_hangs_or_crashes(tmp_path: Path, kind: str) -> None:
    victim = tmp_path / "victim"
    victim.write_text(SECRET)
    cluster = LocalCluster(tmp_path)
    sign, go = cluster.scratch / "planted", cluster.scratch / "go"
    attack = plant('"${TORCHELASTIC_ERROR_FILE%/*}"', kind, victim)
    app_id = cluster.schedule(f"{attack}touch {sign}\nuntil [ -e {go} ]; do sleep 0.02; done\n")
    wait_for(sign.exists, "the attack", timeout_s=20)

    def lines() -> Any:
        return list(islice(cluster.scheduler.log_iter(app_id, "job"), 2))

    questions: list[Callable[[], Any]] = [lambda: cluster.status(app_id), lines]
    for ask in questions:
        with suppress(NemoRunError):
            ask()
    go.touch()
    for ask in questions:
        with suppress(NemoRunError):
            ask()
    with suppress(NemoRunError):
        cluster.cancel(app_id)
    assert victim.read_text() == SECRET
