"""The log of a RayJob: that of the pod which submits it and follows what it prints."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

from nemo_run._backends.kubernetes.pod_lines import Window, new_lines
from nemo_run._backends.kubernetes.pod_logs import PodLogs, Reading
from nemo_run._backends.kubernetes.pods import Pod
from nemo_run._backends.ray.kuberay.client import KubeRay

JOB_LABEL = "job-name"


def submitters(api: KubeRay, job: str) -> list[Pod]:
    """Return the pods that submit a RayJob, the oldest first: one for each try."""
    return api.pods(f"{JOB_LABEL}={job}")


class SubmitterLog(PodLogs[Pod]):
    """What the submitters of a RayJob print; a second `read` goes on where the first ended."""

    def __init__(self, api: KubeRay, job: str) -> None:
        super().__init__(Window())
        self._api, self._job = api, job

    def pods(self) -> list[Pod]:
        return [pod for pod in submitters(self._api, self._job) if pod.containers]

    def name_of(self, pod: Pod) -> str:
        return pod.name

    def lines(
        self, pod: Pod, reading: Reading, *, follow: bool, last_only: bool
    ) -> Iterator[bytes]:
        since = reading.at.stamp
        stream = self._api.log(pod.name, pod.containers[0].name, follow=follow, since=since)
        with closing(stream) as blocks:
            yield from new_lines(blocks, reading.at, follow, Window())

    def printed(self, pod: Pod) -> int:
        return 0
