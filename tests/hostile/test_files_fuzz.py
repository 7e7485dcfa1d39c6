"""Every parser of what others wrote, given what nobody would write.

It returns something or says in our words what is wrong: it does not crash, call or hang.
"""

from __future__ import annotations

import base64
import contextlib
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as examples
from hypothesis import strategies as st
from tests.hostile.examples import count
from tests.hostile.parsers import PARSERS

import nemo_run as run
from nemo_run._backends.kubernetes.pod_lines import Position, Window, new_lines, whole_lines
from nemo_run._backends.slurm import answers, log_files, remote
from nemo_run._backends.slurm.legacy import find_slurm_job
from nemo_run._experiments.provenance.record import read_provenance
from nemo_run._experiments.store import listing
from nemo_run._experiments.store.directory import ExperimentDirectory
from nemo_run._experiments.store.loading import damage_said, load_job, read_experiment
from nemo_run._jobs import legacy
from nemo_run._jobs.log_lines import split_lines
from nemo_run._jobs.store import JobStore
from nemo_run._transport.answers import OddAnswerError, decoded
from nemo_run._transport.ssh import sftp_wire
from nemo_run.core.serialization import _envelope
from nemo_run.core.serialization._envelope import seal, unseal
from nemo_run.core.serialization.peek import peek
from nemo_run.core.serialization.zlib_json import ZlibJSONSerializer
from nemo_run.exceptions import BackendUnavailableError, NemoRunError
from nemo_run.run.job import Job

QUICK = examples(
    max_examples=count(40), suppress_health_check=[HealthCheck.function_scoped_fixture]
)

atoms = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(
        ["__main__", "os", "system", "ref", "leaf", "pyref", "FAILED", "../../x", "0"]
    )
)
data = st.recursive(
    atoms,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=12,
)


def places(document: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    if isinstance(document, (dict, list)):
        for key, value in document.items() if isinstance(document, dict) else enumerate(document):
            yield from places(value, (*path, key))


def changed(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    copy = dict(document) if isinstance(document, dict) else list(document)
    copy[path[0]] = changed(document[path[0]], path[1:], value)
    return copy


@st.composite
def broken(draw: st.DrawFn, document: Any) -> Any:
    """A document in which some places hold something else."""
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from(list(places(document))))
        document = changed(document, path, draw(data))
    return document


def a_job() -> str:
    executor = run.SlurmExecutor(
        account="a", tunnel=run.SSHTunnel(host="h", user="u", job_dir="/x"), packager=run.Packager()
    )
    return Job(id="job", task=run.Script(inline="true"), executor=executor).serialize_job()


JOB = unseal(a_job())
TASK = ZlibJSONSerializer().serialize(run.Script(inline="true"))


@QUICK
@given(broken(JOB))
def test_stored_jobs(document: Any) -> None:
    text = seal(document)
    for read in (lambda: peek(text), lambda: _loaded(text)):
        try:
            read()
        except NemoRunError:
            continue


def _loaded(text: str) -> None:
    with damage_said(Path("_TASKS")):
        load_job(text, TASK)


@QUICK
@given(st.text(max_size=60) | st.binary(max_size=60).map(lambda b: b.decode("latin-1")))
def test_texts_of_stored_configs(text: str) -> None:
    for read in (unseal, peek, ZlibJSONSerializer().deserialize):
        with pytest.raises(NemoRunError):
            read(text)


def test_a_config_that_unpacks_to_a_lot_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_envelope, "MOST_BYTES", 1 << 20)
    text = base64.urlsafe_b64encode(zlib.compress(b" " * (2 << 20), 1)).decode()
    with pytest.raises(NemoRunError, match="more than 1 MiB"):
        unseal(text)


def test_a_config_that_contains_itself_is_refused() -> None:
    ref = {"type": "ref", "key": "a"}
    node = {"type": {"module": "builtins", "name": "list"}, "items": [["", ref]], "metadata": []}
    text = seal({"root": ref, "objects": {"a": node}})
    for read in (peek, ZlibJSONSerializer().deserialize):
        with pytest.raises(NemoRunError):
            read(text)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> ExperimentDirectory:
    path = tmp_path_factory.mktemp("experiment")
    (path / ".nemo_run").mkdir()
    return ExperimentDirectory(path)


files = st.binary(max_size=80) | data.map(lambda value: json.dumps(value).encode())


@QUICK
@given(st.lists(files, min_size=6, max_size=6))
def test_files_of_an_experiment(directory: ExperimentDirectory, contents: list[bytes]) -> None:
    names = ["_CONFIG", "_TASKS", "_TUNNELS", "provenance.json"]
    names += [f"{listing.STATE}/0.json", f"{listing.STATE}/{listing.LABELS}"]
    for name, content in zip(names, contents, strict=True):
        (directory.path / name).parent.mkdir(parents=True, exist_ok=True)
        (directory.path / name).write_bytes(content)
    path = str(directory.path)
    listing.stored_title(path)
    listing.read_labels(path)
    for read in (
        lambda: listing.read_entry(0.0, "t", path),
        lambda: listing.read_jobs(path),
        lambda: directory.read_state(0),
        lambda: directory.read_plan(0),
        lambda: directory.read_tasks(),
        lambda: read_experiment(directory, ["log_level"]),
        lambda: read_provenance(directory.path),
    ):
        try:
            read()
        except NemoRunError:
            continue


@QUICK
@given(files)
def test_records_and_indices(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    home = tmp_path_factory.mktemp("home")
    index = home / "index"
    index.write_bytes(content)
    legacy.find_local_job(index, "a")
    list(legacy.local_jobs(index))
    legacy.find_cloud_job(index, "a", "lepton")
    find_slurm_job(index, "1")
    store = JobStore(home)
    record = store.path("a", "local_persistent")
    record.parent.mkdir(parents=True)
    record.write_bytes(content)
    try:
        store.find("a", "local_persistent")
    except NemoRunError:
        return


words = st.sampled_from(
    ["12", "12_3", "12_[1-9999999999]", "12+1", "FAILED", "0:9", "9" * 5000, "Unknown", "|", "\n"]
)
rows = st.lists(words | st.text(max_size=6), max_size=12).map("|".join)


@QUICK
@given(rows)
def test_answers_of_slurm(text: str) -> None:
    answers.by_job(answers.parse_squeue(text))
    answers.by_job(answers.parse_sacct(text))
    answers.parse_exit(text, text)
    answers.array_elements(text[:20])
    remote.blocks(text)
    remote.ours(text)


@QUICK
@given(st.lists(st.binary(max_size=30), max_size=6))
def test_logs(blocks: list[bytes]) -> None:
    assert b"".join(whole_lines(iter(blocks))) == b"".join(blocks)
    with contextlib.suppress(BackendUnavailableError):
        list(new_lines(iter(blocks), Position(), False, Window()))
    text = b"".join(blocks).decode("utf-8", "replace")
    assert "".join(split_lines(text)) == text


@QUICK
@given(st.binary(max_size=80) | data.map(lambda value: json.dumps(value).encode()))
def test_answers_of_servers(content: bytes) -> None:
    try:
        decoded(content)
    except OddAnswerError:
        return


@pytest.mark.parametrize("name", PARSERS)
@QUICK
@given(
    st.binary(max_size=80)
    | data.map(lambda value: json.dumps(value).encode())
    | rows.map(str.encode)
)
def test_no_parser_breaks(name: str, content: bytes) -> None:
    PARSERS[name](content)


@pytest.mark.parametrize("body", [b"", b"\0\0", b"\0\0\0\4", b"\0\0\0\4\xff\xff\xff\xffx"])
def test_half_a_packet_of_sftp_is_the_end_of_it(body: bytes) -> None:
    with pytest.raises(EOFError):
        sftp_wire.error(sftp_wire.Packet(101, body), "x")


@pytest.mark.parametrize("text", ["0 0", "9 0 4 log\nZm9vCg==", "0 x 4 log\n", "0 0 4 log\nZ"])
def test_an_odd_answer_about_logs_is_none(text: str) -> None:
    with pytest.raises(BackendUnavailableError, match="cannot be read"):
        log_files.log_parts(f"{remote.MARK} file {text}", 1)
