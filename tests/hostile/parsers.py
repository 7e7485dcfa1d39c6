"""Every parser of what others wrote, as a function of bytes: what `make fuzz` gives odd input to.

Each returns, or raises an error of ours. Another exception, a call of something that was named, or
a file outside of its place is a hole.
"""

from __future__ import annotations

import atexit
import contextlib
import io
import json
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from nemo_run._backends.docker.client import Container, _frames
from nemo_run._backends.kubeflow.client import TrainJob
from nemo_run._backends.kubeflow.pods import Node
from nemo_run._backends.kubeflow.script import Outcome
from nemo_run._backends.kubernetes.pod_lines import Position, Window, new_lines, whole_lines
from nemo_run._backends.kubernetes.pods import Pod
from nemo_run._backends.lepton.script import ExitMark
from nemo_run._backends.runai.client import Pod as RunaiPod
from nemo_run._backends.runai.client import Project, Workload
from nemo_run._backends.slurm import answers, log_files, remote
from nemo_run._backends.slurm.legacy import find_slurm_job
from nemo_run._experiments.provenance.record import read_provenance
from nemo_run._experiments.store import listing
from nemo_run._experiments.store.directory import ExperimentDirectory
from nemo_run._experiments.store.loading import read_experiment
from nemo_run._jobs import legacy
from nemo_run._jobs.log_lines import split_lines
from nemo_run._jobs.shown_text import as_text, for_terminal, in_message
from nemo_run._jobs.store import JobStore
from nemo_run._transport.answers import Answer, OddAnswerError, decoded
from nemo_run._transport.ssh import openssh, sftp_wire
from nemo_run._transport.timestamps import seconds
from nemo_run.cli.values.config_files import load_config_from_path
from nemo_run.core.packaging._unpack import unpack
from nemo_run.core.serialization._envelope import seal, unseal
from nemo_run.core.serialization.peek import peek
from nemo_run.exceptions import NemoRunError

Parser = Callable[[bytes], None]
PARSERS: dict[str, Parser] = {}

_place = Path(tempfile.mkdtemp(prefix="nemo-run-fuzz-"))
atexit.register(shutil.rmtree, _place, ignore_errors=True)


def parser(read: Parser) -> Parser:
    PARSERS[read.__name__] = read
    return read


def _tried(*reads: Callable[[], object]) -> None:
    for read in reads:
        with contextlib.suppress(NemoRunError):
            read()


@parser
def records(data: bytes) -> None:
    store = JobStore(_place)
    file = store.path("a", "local_persistent")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data)
    _tried(
        lambda: store.find("a", "local_persistent"), lambda: list(store.list("local_persistent"))
    )


@parser
def old_indexes(data: bytes) -> None:
    index = _place / "index"
    index.write_bytes(data)
    legacy.find_local_job(index, "a")
    list(legacy.local_jobs(index))
    legacy.find_cloud_job(index, "a", "lepton")
    find_slurm_job(index, "1")


@parser
def experiments(data: bytes) -> None:
    """Files of an experiment, one after the other."""
    path = _place / "experiment"
    (path / listing.STATE).mkdir(parents=True, exist_ok=True)
    (path / ".nemo_run").mkdir(exist_ok=True)
    directory = ExperimentDirectory(path)
    names = ["_CONFIG", "_TASKS", "_TUNNELS", "provenance.json"]
    names += [f"{listing.STATE}/0.json", f"{listing.STATE}/{listing.LABELS}"]
    for name, content in zip(names, data.split(b"\0", 5), strict=False):
        (path / name).write_bytes(content)
    listing.stored_title(str(path))
    listing.read_labels(str(path))
    _tried(
        lambda: listing.read_entry(0.0, "t", str(path)),
        lambda: listing.read_jobs(str(path)),
        lambda: directory.read_state(0),
        lambda: directory.read_plan(0),
        lambda: directory.read_tasks(),
        lambda: read_experiment(directory, ["log_level"]),
        lambda: read_provenance(path),
    )


@parser
def configs(data: bytes) -> None:
    """Stored configs: the text of one, and the document in one."""
    text = data.decode("utf-8", "replace")
    _tried(lambda: unseal(text), lambda: peek(text))
    with contextlib.suppress(ValueError, RecursionError):
        document = json.loads(data)
        _tried(lambda: peek(seal(document)))


@parser
def config_files(data: bytes) -> None:
    for suffix in ("yaml", "json", "toml"):
        file = _place / f"values.{suffix}"
        file.write_bytes(data)
        _tried(lambda file=file: load_config_from_path(f"@{file}"))  # type: ignore[misc]


@parser
def archives(data: bytes) -> None:
    target = _place / "around" / "target"
    target.mkdir(parents=True)
    (_place / "around" / "x").write_bytes(b"mine")
    try:
        _tried(lambda: unpack(io.BytesIO(data), target))
        assert (_place / "around" / "x").read_bytes() == b"mine"
        assert {path.name for path in (_place / "around").iterdir()} == {"x", "target"}
    finally:
        shutil.rmtree(_place / "around", ignore_errors=True)


@parser
def slurm_answers(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    answers.by_job(answers.parse_squeue(text))
    answers.by_job(answers.parse_sacct(text))
    name, _, numbers = text.partition(" ")
    answers.parse_exit(name, numbers)
    answers.array_elements(text[:40])
    ours = text.replace("@", remote.MARK)
    remote.blocks(ours)
    _tried(lambda: log_files.log_parts(ours, 2))


@parser
def marks(data: bytes) -> None:
    """What a job leaves of its end: in files, in its log, as the message of its pod."""
    text = data.decode("utf-8", "replace")
    for nonce in ("", "0123"):
        Outcome.from_message(f"nemo_run {nonce}".strip() + text, nonce)
        Outcome.from_file(text, nonce)
        mark = ExitMark("job", nonce)
        line = f"[{mark.words}{text}"
        mark.end(line)
        assert mark.strip(line) in (line, "") or mark.end(line)


@parser
def logs(data: bytes) -> None:
    blocks = [data[start : start + 7] for start in range(0, len(data), 7)]
    assert b"".join(whole_lines(iter(blocks))) == data
    _tried(lambda: list(new_lines(iter(blocks), Position(), False, Window())))
    text = data.decode("utf-8", "replace")
    assert "".join(split_lines(text)) == text
    for shown in (as_text(text), in_message(text), for_terminal(text)):
        assert not set(shown) & set("\x00\x07\x08\x9b\x9d")


@parser
def server_answers(data: bytes) -> None:
    try:
        answer = Answer(decoded(data))
    except OddAnswerError:
        return
    for kind in (Pod, TrainJob, Workload, RunaiPod, Project):
        with contextlib.suppress(OddAnswerError):
            kind.read(answer)
    with contextlib.suppress(OddAnswerError):
        Node.of(Pod.read(answer))


@parser
def docker_answers(data: bytes) -> None:
    with contextlib.suppress(OSError):
        for _ in zip(range(9), _frames(io.BytesIO(data)), strict=False):
            pass
    with contextlib.suppress(ValueError, RecursionError):
        document = json.loads(data)
        _tried(lambda: Container.from_json(document))


@parser
def ssh_answers(data: bytes) -> None:
    with contextlib.suppress(OSError, EOFError):
        packet = sftp_wire.receive(io.BytesIO(data))
        packet.number()
        packet.text()
        packet.attributes()
        sftp_wire.error(packet, "x")
    text = data.decode("utf-8", "replace")
    openssh.parse_config(text)
    openssh.outcome(text)
    openssh.used_master(text)
    with contextlib.suppress(ValueError):
        seconds(text)
