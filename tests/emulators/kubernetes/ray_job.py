"""RayJobs of the KubeRay operator: a cluster, a submitter, and what is said of the job."""

from __future__ import annotations

import json
import time
from typing import Any

from tests.emulators.kubernetes.pods import Pod, rfc3339
from tests.emulators.kubernetes.ray import (
    LOOPBACK,
    OperatedObject,
    RayCluster,
    RayOperator,
    suffix,
)

_TERMINAL = ("SUCCEEDED", "FAILED", "STOPPED")


class RayJob(OperatedObject):
    """A cluster of its own, and a pod that submits a command to it and follows its log."""

    kind = "RayJob"

    def __init__(self, operator: RayOperator, body: dict[str, Any]) -> None:
        self.cluster: RayCluster | None = None
        self.submitters: list[Pod] = []
        self.failures = 0
        super().__init__(operator, body)

    @property
    def deployment(self) -> str:
        return str(self.status.get("jobDeploymentStatus", ""))

    def _reconcile(self) -> None:
        if self.spec.get("suspend"):
            self._suspend()
        elif self.deployment in ("Complete", "Failed"):
            if self.spec.get("shutdownAfterJobFinishes") and self.cluster is not None:
                self._end_cluster()
        elif self.cluster is None:
            self._begin()
        elif not self.submitters:
            if self.cluster.status.get("state") == "ready":
                self._submit()
        else:
            self._watch()

    def _suspend(self) -> None:
        self._end_cluster()
        self._remove([pod for pod in self.submitters if not pod.gone])
        self.submitters = []
        self.status = {"jobDeploymentStatus": "Suspended"}

    def _begin(self) -> None:
        name = f"{self.name}-{suffix()}"
        body = {
            "apiVersion": "ray.io/v1",
            "kind": "RayCluster",
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": self.spec["rayClusterSpec"],
        }
        self.cluster = RayCluster(self.operator, body)
        self.operator.clusters[self.namespace, name] = self.cluster
        self.operator.created.append(self.cluster)
        self.status = {
            "jobId": self.spec.get("jobId") or f"{self.name}-{suffix()}",
            "rayClusterName": name,
            "jobDeploymentStatus": "Initializing",
            "startTime": rfc3339(time.time()),
        }

    def _submit(self) -> None:
        assert self.cluster is not None
        self.status |= {
            "dashboardURL": f"{self.cluster.name}-head-svc.{self.namespace}.svc:8265",
            "jobDeploymentStatus": "Running",
        }
        address = f"http://{LOOPBACK}:{self.cluster.dashboard_port}"
        job = self.status["jobId"]
        env = self.spec.get("runtimeEnvYAML", "")
        options = f" --runtime-env-json {json.dumps(json.dumps(_yaml(env)))}" if env else ""
        command = (
            f"if ! ray job status --address {address} {job} >/dev/null 2>&1 ; "
            f"then ray job submit --address {address} --no-wait{options} --submission-id {job} "
            f"-- {self.spec['entrypoint'].strip()} ; fi ; "
            f"ray job logs --address {address} --follow {job}"
        )
        head = self.spec["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["containers"][0]
        container = {
            "name": "ray-job-submitter",
            "image": head["image"],
            "command": ["/bin/bash", "-c", "--"],
            "args": [f"{command}"],
            "env": self.cluster.auth(),
        }
        labels = {"job-name": self.name, "batch.kubernetes.io/job-name": self.name}
        self.submitters.append(
            self._make_pod(
                {"spec": {"restartPolicy": "Never", "containers": [container]}},
                f"{self.name}-{suffix()}",
                labels=labels,
            )
        )

    def _watch(self) -> None:
        assert self.cluster is not None
        latest = self.submitters[-1]
        limit = (self.spec.get("submitterConfig") or {}).get("backoffLimit", 2)
        if latest.phase == "Failed" and len(self.submitters) <= limit:
            self._submit()
            return
        status, said = self.cluster.ask("GET", f"/api/jobs/{self.status['jobId']}")
        if status == 200:
            self.status["jobStatus"] = said["status"]
        # Of a job that the head does not know any more, the last word stays: kuberay#2359.
        if latest.phase in ("Succeeded", "Failed"):
            if self.status.get("jobStatus") in _TERMINAL:
                self._finish(self.status["jobStatus"])
            elif latest.phase == "Failed":
                why = "Job submission has failed: BackoffLimitExceeded"
                self._fail("SubmissionFailed", why)

    def _finish(self, status: str) -> None:
        if status != "FAILED":
            self.status |= {"jobDeploymentStatus": "Complete", "endTime": rfc3339(time.time())}
            return
        self._fail("AppFailed", "Job entrypoint command failed with exit code 1")

    def _fail(self, reason: str, message: str) -> None:
        self.failures += 1
        if self.failures <= self.spec.get("backoffLimit", 0):
            self.status["jobDeploymentStatus"] = "Retrying"
            self._end_cluster()
            self._remove([pod for pod in self.submitters if not pod.gone])
            self.submitters = []
            return
        self.status |= {
            "jobDeploymentStatus": "Failed",
            "reason": reason,
            "message": message,
            "failed": self.failures,
            "endTime": rfc3339(time.time()),
        }

    def _end_cluster(self) -> None:
        cluster, self.cluster = self.cluster, None
        if cluster is None:
            return
        cluster.delete()
        while not cluster.gone and not self.closed:
            time.sleep(0.01)

    def _end(self) -> None:
        self._end_cluster()
        super()._end()
        self.operator.jobs.pop((self.namespace, self.name), None)


def _yaml(text: str) -> Any:
    import yaml

    return yaml.safe_load(text)
