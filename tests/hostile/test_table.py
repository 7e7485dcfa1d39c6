"""Which attack is tried on which backend, by which test; where none is, why.

A backend that joins the contract suite joins this table: an attack that is neither tried nor
explained fails.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest
from tests.contract.backends import BACKENDS
from tests.hostile.attacks import REACH

TESTS = Path(__file__).parents[1]

OUTPUT = "hostile/test_jobs_output.py::test_forged_words_change_nothing_and_stay_in_the_log"
PLANTED = "hostile/test_jobs.py::test_a_job_that_runs_is_seen_and_cancelled"
TERMINAL = "hostile/test_jobs_terminal.py::test_no_command_that_looks_steers_the_terminal"
SLURM = "hostile/test_jobs_slurm.py"
VENDORS = "hostile/test_servers_vendors.py"
HTTP = "unit/test_clients_http.py"
LEPTON = "hostile/test_servers_lepton.py"
SSH = "hostile/test_servers_ssh.py"
VOLUMES = "hostile/test_files_on_clusters.py::test_nothing_on_a_volume_is_for_others"

NO_SERVER = "no: there is no server; the processes are the user's own"
SKYPILOT = "no: SkyPilot's own client and agent do this, on machines that SkyPilot makes"

PLANTS = {
    "dgx_cloud": PLANTED,
    "docker": PLANTED,
    "kubeflow": PLANTED,
    "kubeflow-without-volume": PLANTED,
    "lepton": "no: the launcher reads nothing that a job writes but its log, by Lepton's API",
    "local": "hostile/test_jobs_local.py::test_no_question_hangs_or_crashes",
    "ray": "no: the launcher asks Ray for states and logs, and reads no file of a job",
    "skypilot": SKYPILOT,
    "skypilot_jobs": SKYPILOT,
    "slurm": f"{SLURM}::test_a_fifo_and_a_huge_file_hold_nothing_up",
    "slurm-without-accounting": f"{SLURM}::test_a_job_without_accounting_has_no_end_by_another",
}
FORGED = {
    **dict.fromkeys(BACKENDS, OUTPUT),
    "skypilot": SKYPILOT,
    "skypilot_jobs": SKYPILOT,
}
ODD = {
    "dgx_cloud": "integration/dgxcloud/test_odd_answers.py::"
    "test_neither_cancelling_nor_reading_raises_anything_else_than_our_errors",
    "docker": "hostile/test_files_fuzz.py::test_no_parser_breaks",
    "kubeflow": "integration/kubeflow/test_odd_answers.py::"
    "test_neither_cancelling_nor_reading_raises_anything_else_than_our_errors",
    "kubeflow-without-volume": "integration/kubeflow/test_odd_answers.py::"
    "test_a_job_that_runs_is_still_known_to_run_and_why_nothing_newer_is",
    "lepton": f"{LEPTON}::test_every_call_says_what_is_wrong_in_our_words",
    "local": NO_SERVER,
    "ray": f"{HTTP}::TestOddAnswers",
    "skypilot": "integration/skypilot/test_skypilot_clusters.py::"
    "test_odd_answers_say_nothing_about_a_job",
    "skypilot_jobs": "integration/skypilot/test_skypilot_sdk.py::"
    "test_what_it_raises_and_odd_answers_are_told_from_defects",
    "slurm": "hostile/test_files_fuzz.py::test_answers_of_slurm",
    "slurm-without-accounting": "hostile/test_files_fuzz.py::test_answers_of_slurm",
}
LIMITS = {
    **dict.fromkeys(
        ("dgx_cloud", "kubeflow", "kubeflow-without-volume", "ray"),
        f"{HTTP}::test_a_bomb_takes_no_memory",
    ),
    "docker": f"{VENDORS}::test_no_answer_takes_memory_or_leads_elsewhere",
    "lepton": f"{LEPTON}::test_a_bomb_takes_no_memory_and_no_call_goes_elsewhere",
    "local": NO_SERVER,
    **dict.fromkeys(
        ("skypilot", "skypilot_jobs"),
        f"{VENDORS}::test_an_answer_that_has_begun_has_a_deadline",
    ),
    **dict.fromkeys(
        ("slurm", "slurm-without-accounting"),
        f"{SSH}::test_a_command_whose_output_does_not_end_is_given_up",
    ),
}
REDIRECTS = {
    **dict.fromkeys(
        ("kubeflow", "kubeflow-without-volume", "ray"), f"{HTTP}::test_no_redirect_is_followed"
    ),
    "dgx_cloud": "integration/dgxcloud/test_odd_answers.py::test_the_secret_does_not_follow",
    "docker": f"{VENDORS}::test_no_answer_takes_memory_or_leads_elsewhere",
    "lepton": f"{LEPTON}::test_a_bomb_takes_no_memory_and_no_call_goes_elsewhere",
    "local": NO_SERVER,
    **dict.fromkeys(
        ("skypilot", "skypilot_jobs"), f"{VENDORS}::test_what_is_posted_goes_nowhere_else"
    ),
    **dict.fromkeys(
        ("slurm", "slurm-without-accounting"), "no: ssh has no redirects, and knows hosts by keys"
    ),
}
READERS = {
    **dict.fromkeys(("dgx_cloud", "kubeflow", "lepton"), VOLUMES),
    "docker": "no: the files of a job are on the launcher's machine, in its home (0700)",
    "kubeflow-without-volume": "no: files travel in a secret of the cluster",
    "local": "no: the files of a job are in the launcher's home (0700)",
    "ray": "no: Ray has no users; all who reach a cluster may read and run everything there",
    "skypilot": SKYPILOT,
    "skypilot_jobs": SKYPILOT,
    **dict.fromkeys(
        ("slurm", "slurm-without-accounting"),
        "hostile/test_files_on_clusters.py::test_all_that_reaches_slurm_is_for_its_owner_only",
    ),
}
CHANGED_CODE = {
    "dgx_cloud": "integration/dgxcloud/test_files.py::"
    "test_what_the_volume_has_is_not_sent_again_unless_it_was_changed",
    **dict.fromkeys(
        ("slurm", "slurm-without-accounting"),
        "unit/test_slurm_remote.py::test_code_that_was_changed_on_the_cluster_does_not_run",
    ),
    **dict.fromkeys(
        ("docker", "local"),
        "hostile/test_files_archives.py::test_an_archive_that_was_changed_in_place_is_packed_anew",
    ),
    **dict.fromkeys(
        ("kubeflow", "kubeflow-without-volume", "lepton", "ray"),
        "no: no archive is kept there; code is sent with each job",
    ),
    "skypilot": SKYPILOT,
    "skypilot_jobs": SKYPILOT,
}
TABLE = {
    "links, FIFOs, huge files, forged files": PLANTS,
    "forged words in the log": FORGED,
    "escapes for the terminal": dict.fromkeys(BACKENDS, TERMINAL),
    "answers of another form": ODD,
    "answers without end, bombs": LIMITS,
    "redirects": REDIRECTS,
    "other users who read": READERS,
    "code that was changed": CHANGED_CODE,
}


@cache
def names_in(file: str) -> set[str]:
    tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
    kinds = (ast.FunctionDef, ast.ClassDef)
    return {node.name for node in ast.walk(tree) if isinstance(node, kinds)}


@pytest.mark.parametrize("attack", TABLE)
def test_every_backend_is_attacked_or_says_why_not(attack: str) -> None:
    assert sorted(TABLE[attack]) == sorted(BACKENDS)
    for backend, test in TABLE[attack].items():
        if not test.startswith("no: "):
            file, _, name = test.partition("::")
            assert name in names_in(file), f"{attack}, {backend}: there is no {test}"


def test_the_table_knows_who_joins_the_suite_of_planted_files() -> None:
    assert sorted(REACH) == sorted(name for name, test in PLANTS.items() if test == PLANTED)
