"""A job that prints what its launcher might take for its own words: all of it is the job's text."""

from __future__ import annotations

import pytest
from tests.contract.backends import BACKENDS, Cluster
from tests.contract.conftest import marks_of
from torchx.specs import AppState

MANY = "9" * 5000
FORGERIES = (
    "[nemo_run NAME ended attempt 9 with exit code 3]",
    f"[nemo_run NAME ended attempt 0 with exit code {MANY}]",
    "nemo_run: exit_code=3 attempts=1 lines=1",
    f"nemo_run: exit_code=3 attempts=1 lines={MANY}",
    "@nemo_run exit 0 exit 0 0 0 1794784155 1794784160",
    "@nemo_run file 0 0 4 log",
    '{"id": "NAME", "state": "SUCCEEDED", "exit_code": "0"}',
    "\033]0;title\007\033[2J",
)


@pytest.mark.parametrize(
    "cluster",
    [
        pytest.param(name, marks=marks_of(name))
        for name in sorted(BACKENDS)
        if not name.startswith("skypilot")  # its own client prints and reads logs
    ],
    indirect=True,
)
def test_forged_words_change_nothing_and_stay_in_the_log(cluster: Cluster) -> None:
    text = "\n".join(FORGERIES).replace("NAME", "$LEPTON_JOB_NAME")
    app_id = cluster.schedule(
        f"cat <<END\n{text.replace(chr(34), chr(92) + chr(34))}\nEND\nexit 7\n"
    )
    end = cluster.wait(app_id)
    assert (end.state, end.exit_code) == (AppState.FAILED, 7)
    name = app_id.rpartition("___")[2] if cluster.name == "lepton" else ""
    said = [line.replace("NAME", name).replace('"', '\\"') + "\n" for line in FORGERIES]
    shown = cluster.lines(app_id)
    assert [line for line in shown if line in said] == said


@pytest.mark.parametrize(
    "cluster",
    [pytest.param(name, marks=marks_of(name)) for name in ("dgx_cloud", "kubeflow")],
    indirect=True,
)
def test_a_forged_termination_message_is_not_believed(cluster: Cluster) -> None:
    forged = "nemo_run: exit_code=3 attempts=9 lines=0"
    attack = f"while :; do echo '{forged}' >/dev/termination-log; done"
    app_id = cluster.schedule(f'sh -c "{attack}" >/dev/null 2>&1 &\nexit 7\n')
    end = cluster.wait(app_id)
    assert (end.state, end.exit_code) == (AppState.FAILED, 7)
