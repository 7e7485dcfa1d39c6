"""Jobs that wait for slots start in the order in which they were added, in whichever process."""

from __future__ import annotations

from pathlib import Path

from tests.integration.launching import launch, start, wait_for, write

PROGRAM = """
executor = run.LocalExecutor(jobs_at_a_time=1)
with run.Experiment("line", executor=executor) as exp:
    for number in range(6):
        text = f"echo {sys.argv[1]}{number} >> order; while [ ! -e go ]; do sleep 0.02; done"
        exp.add(script(text), name=f"job{number}")
    exp.run(detach=True)
"""


def test_the_first_added_is_the_first_started(tmp_path: Path) -> None:
    launching = write(tmp_path, PROGRAM)
    order = tmp_path / "order"
    assert launch(launching, "a").returncode == 0
    wait_for(order.exists, "the first job")
    later = start(launching, "b")
    assert later.wait() == 0
    (tmp_path / "go").touch()
    wait_for(lambda: len(order.read_text().split()) == 12, "all jobs")
    assert order.read_text().split() == [f"{who}{number}" for who in "ab" for number in range(6)]
