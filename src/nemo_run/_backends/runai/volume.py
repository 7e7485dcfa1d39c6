"""Move files to and from a volume of a Run:ai project.

From outside of the cluster they go through a small workspace that has the volume: one for all jobs
that use the same volumes, which ends itself when it was not used for some minutes. Files are sent
to a command in its pod, so no argument or object that others can read ever holds them, and their
size is not limited. From a pod that has the volume, they are copied.
"""

from __future__ import annotations

import logging
import os
import shutil
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol, TypeVar

from nemo_run._backends.kubernetes.rest import Kube
from nemo_run._backends.kubernetes.volume import BLOCK, blocks_of, through_pods
from nemo_run._backends.runai import payloads
from nemo_run._backends.runai.client import BACKEND, Pod, Project, RunAI, Workload
from nemo_run._files import write_whole
from nemo_run._jobs import foreign
from nemo_run._transport.http import Conflict
from nemo_run._transport.waiting import Waiting
from nemo_run.exceptions import (
    BackendError,
    BackendUnavailableError,
    JobNotFoundError,
    PackagingError,
    SubmitError,
)

if TYPE_CHECKING:
    from nemo_run.core.packaging._store import StagedCode

log = logging.getLogger(__name__)

T = TypeVar("T")

READY_S = 600.0
"""How long a workspace may take to start, say while its image is fetched."""
_POLL_S = (0.1, 5.0)
_GONE = frozenset({"Completed", "Stopped", "Stopping", "Deleting", "Terminating"})
_BROKEN = frozenset({"Failed", "Degraded"})


@dataclass(frozen=True, kw_only=True)
class Item:
    """A file or directory of this machine, or a text, to be put at ``path`` on the volume."""

    path: str
    source: Path | None = None
    text: str = ""
    mode: int = 0o600


@dataclass(frozen=True, kw_only=True)
class Code:
    """The archive that a directory, which ``path`` is to be on the volume, was unpacked from."""

    archive: StagedCode
    path: str


class Volume(Protocol):
    def put(
        self, items: Sequence[Item], *, last: Item | None = None, code: Code | None = None
    ) -> None:
        """Write all items in one go; files that are there are replaced, not changed.

        Of a directory in them that is ``code``, only the archive has to travel, and only once.

        ``last``, a text, is written whole when all else is there. If it is there already, nothing
        is done: another attempt was here before, and a job may be using what it wrote.
        """
        ...

    def read(self, directory: str, pattern: str, start: int = 0) -> Iterator[bytes]:
        """Yield the content of the files that match, the oldest first, from a byte on."""
        ...


class MountedVolume:
    """A volume that is a directory here."""

    def put(
        self, items: Sequence[Item], *, last: Item | None = None, code: Code | None = None
    ) -> None:
        if last is not None and Path(last.path).exists():
            return
        for item in (*items, *([last] if last else [])):
            try:
                self._write(item)
            except OSError as err:
                raise SubmitError(
                    f"Could not write to {item.path}: {err.strerror or err}. With "
                    "launched_from_cluster=True the volume must be mounted here, at the path that "
                    "`pvcs` gives it.",
                    backend=BACKEND,
                    operation="stage",
                ) from err

    def _write(self, item: Item) -> None:
        target = Path(item.path)
        target.parent.mkdir(parents=True, exist_ok=True)
        if item.source is None:
            write_whole(target, item.text.encode(), mode=item.mode)
        elif item.source.resolve() != target.resolve():
            shutil.copytree(
                item.source,
                target,
                symlinks=True,
                ignore=_archives_of(item.source),
                copy_function=_replace,
                dirs_exist_ok=True,
            )
            target.chmod(0o700)

    def read(self, directory: str, pattern: str, start: int = 0) -> Iterator[bytes]:
        files = sorted(Path(directory).glob(pattern), key=lambda path: path.lstat().st_mtime)
        for path in files:
            # A job can have put a FIFO there, or a link to a file of this machine.
            descriptor = foreign.open_file(path, Path(directory))
            if descriptor is None:
                continue
            with os.fdopen(descriptor, "rb") as file:
                size = os.fstat(descriptor).st_size
                file.seek(min(start, size))
                start -= file.tell()
                while block := file.read(BLOCK):
                    yield block


def _replace(source: str, target: str) -> None:
    # A job that runs may have the old file open.
    Path(target).unlink(missing_ok=True)
    shutil.copy2(source, target, follow_symlinks=False)


def _archives_of(job_dir: Path) -> Callable[[str, list[str]], list[str]]:
    """Tell which files stay behind: the archives that code was extracted from."""

    def left_out(directory: str, names: list[str]) -> list[str]:
        return [n for n in names if Path(directory) == job_dir and n.endswith(".tar.gz")]

    return left_out


class WorkspaceVolume:
    """A volume reached through a pod of a workspace."""

    def __init__(
        self,
        client: RunAI,
        kube: Kube,
        project: Project,
        *,
        pvcs: Sequence[Mapping[str, Any]],
        security: Mapping[str, Any],
        home: str,
        patience_s: float,
    ) -> None:
        """``home`` is our directory on the volume, its path without blanks or quotes."""
        self._client = client
        self._kube = kube
        self._project = project
        self._pvcs = pvcs
        self._security = security
        self._patience_s = patience_s
        self._prefix = payloads.mover_prefix(pvcs, security)
        self._used = str(PurePosixPath(home) / ".dgx_cloud" / self._prefix)
        self._archives = str(PurePosixPath(home) / ".dgx_cloud" / "archives")

    def put(
        self, items: Sequence[Item], *, last: Item | None = None, code: Code | None = None
    ) -> None:
        # The end of the input cannot be told, hence the count.
        steps = ['head -c "$2" | tar -xzof - -C /']
        seal = ""
        if code is not None:
            steps.append('mkdir -p "$5" && tar -xzof "$4" -C "$5"')
        if last is not None:
            steps.append('mv "$3.part" "$3"')
            seal = last.path
            items = [*items, replace(last, path=f"{seal}.part")]
        extract = f'[ -e "$3" ] || {{ {" && ".join(steps)}; }}'
        with tempfile.TemporaryFile() as archive:
            _pack(items, archive, without=code.path if code is not None else "")
            size = archive.tell()

            def attempt(pod: Pod) -> None:
                args = [str(size), seal]
                if code is not None:
                    args += [self._delivered(pod, code.archive), code.path]
                blocks = blocks_of(archive, size, f"project {self._project.name}")
                for _ in self._run(pod, extract, *args, stdin=blocks):
                    pass

            self._with_pod(attempt)

    def _delivered(self, pod: Pod, archive: StagedCode) -> str:
        """Return where an archive is on the volume, brought there if it was not."""
        from nemo_run.core.packaging._delivery import deliver

        label = f"code to {self._project.name}"
        try:
            return deliver(archive, _PodEnd(self, pod), self._archives, label=label)
        except PackagingError as err:
            raise SubmitError(str(err), backend=BACKEND, operation="stage") from err

    def read(self, directory: str, pattern: str, start: int = 0) -> Iterator[bytes]:
        # A job can have put a FIFO there, or a link to what others have on the volume.
        show = (
            '[ ! -d "$2" ] || { cd "$2" && ls -tr $3 2>/dev/null | '
            'while read -r file; do [ ! -f "$file" ] || [ -L "$file" ] || cat "$file"; done | '
            'tail -c "+$4"; }'
        )
        pod = self._with_pod(lambda pod: pod)
        yield from self._run(pod, show, directory, pattern, str(start + 1))

    def _run(
        self, pod: Pod, script: str, *args: str, stdin: Iterable[bytes] = ()
    ) -> Iterator[bytes]:
        """Run a script, whose arguments start at ``$2``, and keep the pod from ending meanwhile."""
        whole = (
            '(while touch "$1"; do sleep 30; done) </dev/null >/dev/null 2>&1 & beat=$!; '
            f"{script}; code=$?; kill $beat; exit $code"
        )
        command = ["sh", "-c", whole, "sh", self._used, *args]
        return self._kube.run(pod.name, pod.container, command, stdin=stdin)

    def _with_pod(self, act: Callable[[Pod], T]) -> T:
        """Call ``act`` with a pod, again with another where it was just ending."""
        return through_pods(lambda: act(self._pod()), self._patience_s)

    def _pod(self) -> Pod:
        workspace = self._workspace()
        waiting = Waiting(*_POLL_S, timeout_s=READY_S)
        while True:
            if workspace.phase == "Running":
                pods = self._client.pods(workspace.id)
                if pods and self._kube.pod(pods[-1].name).phase == "Running":
                    return pods[-1]
            elif workspace.phase in _GONE:
                raise JobNotFoundError(f"Workspace {workspace.name} has just ended")
            elif workspace.phase in _BROKEN or waiting.is_over:
                self._give_up(workspace)
            waiting.pause()
            before = workspace.phase
            workspace = self._client.get("workspaces", workspace.id)
            if workspace.phase != before:
                log.info("workspace %s is %s", workspace.name, workspace.phase)

    def _give_up(self, workspace: Workload) -> None:
        said = "; ".join(self._client.events(workspace.id)[-3:]) or workspace.message
        self._client.delete("workspaces", workspace.id)
        raise SubmitError(
            f"Workspace {workspace.name}, which moves files to the volume, is {workspace.phase} "
            f"instead of Running. {said} Check that `pvcs` names claims that project "
            f"{self._project.name!r} can mount, and that its nodes can pull "
            f"{payloads.MOVER_IMAGE}.",
            backend=BACKEND,
            operation="stage",
            detail=said,
        )

    def _workspace(self) -> Workload:
        """Return a workspace that runs or will, made if there is none.

        Processes that need one at the same time ask for the same name, and one of them gets it.
        """
        known = [w for w in self._client.named(self._prefix) if w.project_id == self._project.id]
        for workspace in known:
            if workspace.phase not in _GONE | _BROKEN:
                return workspace
        this_minute = f"{self._prefix}-{int(time.time()) // 60 % 0x100000:x}"
        before = sum(workspace.name.startswith(this_minute) for workspace in known)
        name = f"{this_minute}-{before}"
        body = payloads.mover(
            name=name,
            project=self._project,
            pvcs=self._pvcs,
            security=self._security,
            used=self._used,
        )
        log.info("starting workspace %s to move files to the volume", name)
        try:
            return self._client.create_named("workspaces", body)
        except (BackendUnavailableError, Conflict):
            raise
        except BackendError as err:
            raise SubmitError(
                f"Run:ai did not accept a workspace to move files with: {err.detail}",
                backend=BACKEND,
                operation="stage",
                detail=err.detail,
            ) from err


@dataclass(frozen=True)
class _PodEnd:
    """A pod as the far side of a delivery."""

    volume: WorkspaceVolume
    pod: Pod

    def run(self, command: str) -> str:
        # In a shell of its own, which it may leave.
        return b"".join(self.volume._run(self.pod, f"({command})")).decode()

    def send(self, command: str, stream: BinaryIO) -> None:
        begin = stream.tell()
        size_bytes = stream.seek(0, os.SEEK_END) - begin
        stream.seek(begin)
        blocks = iter(lambda: stream.read(BLOCK), b"")
        script = f'head -c "$2" | ({command})'
        for _ in self.volume._run(self.pod, script, str(size_bytes), stdin=blocks):
            pass


def _pack(items: Sequence[Item], target: Any, *, without: str = "") -> None:
    """Pack items; ``without`` is the path of a directory on the volume that is left out."""
    with tarfile.open(fileobj=target, mode="w:gz", compresslevel=1) as archive:
        for item in items:
            name = item.path.lstrip("/")
            if item.source is not None:
                _add_directory(archive, item.source, name, without.lstrip("/"))
                continue
            data = item.text.encode()
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode, entry.mtime = len(data), item.mode, int(time.time())
            with tempfile.SpooledTemporaryFile() as file:
                file.write(data)
                file.seek(0)
                archive.addfile(entry, file)


def _add_directory(archive: tarfile.TarFile, directory: Path, name: str, without: str) -> None:
    archive.add(directory, name, recursive=False, filter=_private)
    left_out = _archives_of(directory)
    children = sorted(child.name for child in directory.iterdir())
    for child in children:
        if child not in left_out(str(directory), children) and f"{name}/{child}" != without:
            archive.add(directory / child, f"{name}/{child}")


def _private(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.mode = 0o700
    return entry
