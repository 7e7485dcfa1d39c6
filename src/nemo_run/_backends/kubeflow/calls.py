"""The calls of `KubeflowExecutor` that 0.12 has too, over what its scheduler uses."""

from __future__ import annotations

import dataclasses
import logging
import re
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING

from nemo_run._backends.kubeflow import jobs
from nemo_run._backends.kubeflow import script as kubeflow_script
from nemo_run._backends.kubeflow.logs import NodeLogs
from nemo_run._backends.kubeflow.manifests import RUNDIR, SCRIPT_KEY, trainjob_name
from nemo_run._backends.kubeflow.pods import nodes_of, seen
from nemo_run._backends.kubeflow.site import Site
from nemo_run._backends.kubeflow.volume import WorkVolume
from nemo_run._backends.kubernetes import script as kubernetes_script
from nemo_run._backends.kubernetes.pod_lines import Window
from nemo_run._files import write_whole
from nemo_run._jobs.records import mark_nonce, new_tag
from nemo_run._transport.waiting import Waiting
from nemo_run.core.execution.kubeflow import KubeflowJobState
from nemo_run.core.execution.launcher import FaultTolerance
from nemo_run.exceptions import BackendError, ConfigError, JobNotFoundError

if TYPE_CHECKING:
    from nemo_run.core.execution.kubeflow import KubeflowExecutor

log = logging.getLogger(__name__)

_MARKED = re.compile(rb"\[default(\d+)\]:")
_ENDED = (KubeflowJobState.SUCCEEDED, KubeflowJobState.FAILED)


def launch_script(
    executor: KubeflowExecutor,
    argv: Sequence[str],
    *,
    name: str,
    env: Mapping[str, str],
    retries: int,
    nonce: str = "",
) -> str:
    """Return the script that every pod of a job runs. It holds the environment."""
    return kubeflow_script.render(
        argv,
        name=name,
        place=executor.place,
        env=env,
        retries=retries,
        expand=set(dataclasses.asdict(executor.macro_values()).values()),
        before=_fault_tolerance(executor, name),
        nonce=nonce,
    )


def _fault_tolerance(executor: KubeflowExecutor, name: str) -> str:
    """Return what the launcher needs, with its files in the job's directory where it has none."""
    launcher = executor.launcher_in_use()
    if not isinstance(launcher, FaultTolerance):
        return ""
    start = f"{executor.place or RUNDIR}/{name}"
    return kubernetes_script.launcher_lines(
        dataclasses.replace(
            launcher,
            cfg_path=launcher.cfg_path or f"{start}_ft_cfg.yml",
            finished_flag_file=launcher.finished_flag_file or f"{start}_finished_flag",
            job_results_file=launcher.job_results_file or f"{start}_job_results",
        )
    )


def launch(
    executor: KubeflowExecutor,
    name: str,
    cmd: list[str],
    *,
    wait: bool,
    timeout_s: float,
    poll_s: float,
) -> tuple[str, KubeflowJobState]:
    executor.check()
    tag = new_tag()
    job_name = trainjob_name(executor.train_job_basename or name, tag)
    nonce = mark_nonce(tag)
    script = launch_script(
        executor, cmd, name=job_name, env=executor.env_vars, retries=executor.retries, nonce=nonce
    )
    site = Site.current(executor.namespace, patience_s=jobs.SUBMIT_PATIENCE_S)
    jobs.submit(executor, site, name=job_name, tag=tag, script=script, nonce=nonce)
    if not wait:
        return job_name, KubeflowJobState.CREATED
    waiting = Waiting(poll_s, poll_s, timeout_s=timeout_s)
    while (state := status(executor, job_name)) not in (KubeflowJobState.RUNNING, *_ENDED):
        if waiting.is_over:
            raise RuntimeError(f"TrainJob {job_name} has not started after {timeout_s:.0f} s.")
        waiting.pause()
    return job_name, state or KubeflowJobState.UNKNOWN


def status(executor: KubeflowExecutor, job_name: str) -> KubeflowJobState | None:
    name = jobs.name_in(job_name)
    cluster = Site.current(executor.namespace).cluster()
    try:
        job = cluster.trainjob(name)
        on_volume = bool(executor.workdir_pvc)
        pods = nodes_of(cluster, name, job.nonce)
        return seen(job, pods, job.nodes, on_volume=on_volume).state
    except JobNotFoundError:
        return None
    except BackendError as err:
        log.warning("%s: %s", name, err)
        return None


def cancel(
    executor: KubeflowExecutor, job_name: str, *, wait: bool, timeout_s: float, poll_s: float
) -> bool | None:
    name = jobs.name_in(job_name)
    site = Site.current(executor.namespace, patience_s=jobs.STOP_PATIENCE_S)
    cluster = site.cluster()
    try:
        cluster.delete_trainjob(name)
    except JobNotFoundError:
        return None
    return jobs.wait_gone(cluster, name, timeout_s=timeout_s, poll_s=poll_s) if wait else None


def fetch_logs(
    executor: KubeflowExecutor, job_name: str, stream: bool, lines: int, timeout_s: float
) -> Iterator[str]:
    name = jobs.name_in(job_name)
    cluster = Site.current(executor.namespace).cluster()
    waiting = Waiting(0.5, 0.5, timeout_s=timeout_s)
    while stream and not nodes_of(cluster, name) and not _has_ended(executor, name):
        if waiting.is_over:
            return
        waiting.pause()
    found_job = jobs.find(cluster, name, "")
    nonce = found_job.nonce if found_job else ""
    sources = {
        node: NodeLogs(
            cluster, name, node, continued=bool(executor.workdir_pvc), window=Window(), nonce=nonce
        ).read(
            follow=stream,
            ended=lambda: _has_ended(executor, name),
            otherwise=lambda: iter(()),
        )
        for node in range(executor.num_nodes)
    }
    found = _as_they_come(sources) if stream else _in_turn(sources)
    shown = (
        line.decode("utf-8", "replace")
        for node, line in _noted(executor, found, at_once=stream)
        if _is_shown(executor, node, line)
    )
    yield from shown if stream else deque(shown, maxlen=lines)


def _is_shown(executor: KubeflowExecutor, node: int, line: bytes) -> bool:
    """Tell whether a line is of the first process or the last.

    One that torchrun has not marked is of the first node or the last.
    """
    mark = _MARKED.search(line)
    first, last = (0, 0), (executor.num_nodes - 1, executor.nproc_per_node() - 1)
    if mark is None:
        return node in (first[0], last[0])
    return (node, int(mark[1])) in (first, last)


def _in_turn(sources: Mapping[int, Iterator[bytes]]) -> Iterator[tuple[int, bytes]]:
    return ((node, line) for node, source in sources.items() for line in source)


def _as_they_come(sources: Mapping[int, Iterator[bytes]]) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of several logs, each as soon as it is there; raise what one of them does."""
    heard: SimpleQueue[tuple[int, bytes | Exception | None]] = SimpleQueue()
    abandoned = threading.Event()

    def read(node: int, source: Iterator[bytes]) -> None:
        try:
            for line in source:
                heard.put((node, line))
                if abandoned.is_set():
                    return
            heard.put((node, None))
        except Exception as err:  # noqa: BLE001 - handed over to the thread that waits for us
            heard.put((node, err))

    for item in sources.items():
        threading.Thread(target=read, args=item, daemon=True).start()
    left = len(sources)
    try:
        while left:
            node, line = heard.get()
            if isinstance(line, Exception):
                raise line
            if line is None:
                left -= 1
            else:
                yield node, line
    finally:
        abandoned.set()


def _noted(
    executor: KubeflowExecutor, found: Iterator[tuple[int, bytes]], *, at_once: bool
) -> Iterator[tuple[int, bytes]]:
    """Pass lines on, and have a copy of all in the directory of the job, if there is one.

    An earlier copy stays until there is a new one: ``at_once`` one that grows, else a whole one.
    """
    directory = Path(executor.job_dir) if executor.job_dir else None
    if directory is None or not directory.is_dir():
        yield from found
        return
    path = directory / "log-allranks_0.out"
    with tempfile.TemporaryDirectory(prefix=".", dir=directory) as scratch:
        part = Path(scratch, path.name)
        with part.open("wb", buffering=0) as file:
            for node, line in found:
                file.write(line)
                if at_once and part.exists():
                    part.replace(path)
                yield node, line
        if part.exists() and part.stat().st_size:
            part.replace(path)


def _has_ended(executor: KubeflowExecutor, name: str) -> bool:
    state = status(executor, name)
    if state is not None:
        return state in _ENDED
    # Gone, or not to be had now; only one of these is an end.
    cluster = Site.current(executor.namespace).cluster()
    return jobs.find(cluster, name, "") is None


def materialize_launch_script(executor: KubeflowExecutor, cmd: list[str], max_retries: int) -> str:
    if not executor.job_dir:
        raise ConfigError("This executor belongs to no job yet. Call assign(...) first.")
    name = executor._trainjob_name(executor.job_name)
    text = launch_script(executor, cmd, name=name, env=executor.env_vars, retries=max_retries)
    path = Path(executor.job_dir) / SCRIPT_KEY
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, text.encode("utf-8", "surrogateescape"))
    return str(path)


def copy_to_workspace(
    executor: KubeflowExecutor, local_path: str, remote_path: str, label: str
) -> None:
    _with_volume(executor, lambda volume: volume.put(Path(local_path), remote_path, label=label))


def copy_from_workspace(
    executor: KubeflowExecutor, remote_path: str, local_path: str, label: str
) -> None:
    _with_volume(executor, lambda volume: volume.get(remote_path, Path(local_path), label=label))


def _with_volume(executor: KubeflowExecutor, act: Callable[[WorkVolume], None]) -> None:
    if executor.workdir_pvc:
        site = Site.current(executor.namespace, patience_s=jobs.STOP_PATIENCE_S)
        start = executor.train_job_basename or executor.job_name or "nemo-run"
        name = trainjob_name(start, new_tag())
        act(WorkVolume.of(executor, site.cluster(), name))


def pull_results(executor: KubeflowExecutor, job_name: str, dest_dir: str | None) -> None:
    if not executor.workdir_pvc:
        log.warning("%s has no workdir_pvc, so there is nothing to pull", job_name)
        return
    source, target = executor.code_dir, dest_dir or executor.job_dir
    if not target or not (executor.experiment_id and executor.job_name):
        recorded = _recorded(job_name)
        target = target or recorded.get("job_dir", "")
        source = recorded.get("place") or source
    if not target:
        raise RuntimeError(f"Say where to put the results of {job_name}: give dest_dir.")
    copy_from_workspace(executor, source, target, "pull")


def _recorded(job_name: str) -> Mapping[str, str]:
    """Return what is remembered of a job, by the name of its TrainJob."""
    from nemo_run._jobs.store import JobStore

    name = jobs.name_in(job_name)
    for record in JobStore().list("kubeflow"):
        if record.ref is not None and record.ref.where.get("name") == name:
            return record.ref.where
    return {}
