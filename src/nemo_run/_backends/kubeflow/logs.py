"""Logs of TrainJobs, as their pods tell them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

from nemo_run._backends.kubeflow.client import Cluster
from nemo_run._backends.kubeflow.manifests import NODE
from nemo_run._backends.kubeflow.pods import Node, nodes_of
from nemo_run._backends.kubernetes.pod_lines import Position, Window, new_lines
from nemo_run._backends.kubernetes.pod_logs import LAST_LINES, ChangedError, PodLogs, Reading
from nemo_run.exceptions import JobNotFoundError, UnsupportedError


class NodeLogs(PodLogs[Node]):
    """The log of one node of a TrainJob.

    ``continued`` says that the log of a new pod begins with that of the pod before, as one of a
    container always does. ``nonce`` is in what the script of the job leaves.
    """

    def __init__(
        self,
        cluster: Cluster,
        name: str,
        replica: int,
        *,
        continued: bool,
        window: Window,
        nonce: str = "",
    ) -> None:
        super().__init__(window)
        self._cluster, self._name, self._replica = cluster, name, replica
        self._continued = continued
        self._nonce = nonce

    def pods(self) -> list[Node]:
        nodes = nodes_of(self._cluster, self._name, self._nonce)
        found = [pod for pod in nodes if pod.index == self._replica]
        return found[-1:] if self._continued else found

    def name_of(self, pod: Node) -> str:
        return "" if self._continued else pod.name

    def lines(
        self, pod: Node, reading: Reading, *, follow: bool, last_only: bool
    ) -> Iterator[bytes]:
        number, previous = pod.log
        if (pod.name, number) != reading.container:
            if self.window and number:
                raise UnsupportedError(
                    "Kubernetes has started this job's container again, and the log does not say "
                    "any more when its lines were written. Ask without since and until."
                )
            reading.container = (pod.name, number)
            reading.skip, reading.at = reading.count, Position()
        try:
            stream = self._cluster.log(
                pod.name,
                NODE,
                follow=follow,
                since=reading.at.stamp,
                tail_lines=LAST_LINES if last_only and not follow else None,
                previous=previous,
            )
            with closing(stream) as blocks:
                # A container that was started meanwhile is another one, whose lines have other
                # times.
                if Node.of(self._cluster.pod(pod.name), pod.nonce).log != pod.log:
                    raise ChangedError(f"{pod.name} was started again")
                yield from new_lines(blocks, reading.at, follow, Window())
        except JobNotFoundError as err:
            raise ChangedError(str(err)) from err

    def printed(self, pod: Node) -> int:
        # A container that is started after the end takes a moment to repeat the log, and Kubernetes
        # one to say that it was started.
        return pod.outcome.lines if pod.outcome is not None else 0
