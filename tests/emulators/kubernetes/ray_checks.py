"""What the API server refuses of RayClusters and RayJobs: fields that their CRDs do not have.

The fields are those of the operator's published types, group ``ray.io``, version ``v1``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.emulators.http import Refused
from tests.emulators.kubernetes import checks

_CLUSTER = {"suspend", "managedBy", "autoscalerOptions", "headServiceAnnotations", "rayVersion"}
_CLUSTER |= {"enableInTreeAutoscaling", "gcsFaultToleranceOptions", "headGroupSpec"}
_CLUSTER |= {"workerGroupSpecs", "authOptions"}
_HEAD = {"template", "headService", "enableIngress", "rayStartParams", "serviceType", "resources"}
_HEAD |= {"labels"}
_WORKER = {"suspend", "groupName", "replicas", "minReplicas", "maxReplicas", "idleTimeoutSeconds"}
_WORKER |= {"rayStartParams", "template", "scaleStrategy", "numOfHosts", "resources", "labels"}
_JOB = {"activeDeadlineSeconds", "backoffLimit", "rayClusterSpec", "submitterPodTemplate"}
_JOB |= {"metadata", "clusterSelector", "submitterConfig", "managedBy", "deletionStrategy"}
_JOB |= {"entrypoint", "runtimeEnvYAML", "jobId", "submissionMode", "entrypointResources"}
_JOB |= {"entrypointNumCpus", "entrypointNumGpus", "ttlSecondsAfterFinished", "suspend"}
_JOB |= {"shutdownAfterJobFinishes", "preRunningDeadlineSeconds"}
_CONTAINER = {"name", "image", "ports", "env", "lifecycle", "resources", "volumeMounts", "command"}
_CONTAINER |= {"args", "workingDir", "imagePullPolicy", "envFrom", "securityContext"}
_SERVICE_TYPES = ("", "ClusterIP", "NodePort", "LoadBalancer")


def raycluster(body: Mapping[str, Any]) -> None:
    _kind(body, "RayCluster")
    checks.metadata(body, "RayCluster", longest=63)
    _cluster_spec(body["metadata"]["name"], body.get("spec") or {}, "spec")


def rayjob(body: Mapping[str, Any]) -> None:
    _kind(body, "RayJob")
    checks.metadata(body, "RayJob", longest=47)
    name, spec = body["metadata"]["name"], body.get("spec") or {}
    checks.known(name, "spec", spec, _JOB)
    if not isinstance(spec.get("entrypoint"), str):
        raise checks.invalid("RayJob", name, "spec.entrypoint: must be a string")
    submitter = spec.get("submitterConfig") or {}
    checks.known(name, "spec.submitterConfig", submitter, {"backoffLimit"})
    for where in (spec, submitter):
        if not isinstance(where.get("backoffLimit", 0), int):
            raise checks.invalid("RayJob", name, "backoffLimit: must be an integer")
    _cluster_spec(name, spec.get("rayClusterSpec") or {}, "spec.rayClusterSpec")


def _kind(body: Mapping[str, Any], kind: str) -> None:
    if body.get("apiVersion") not in ("ray.io/v1", "ray.io/v1alpha1") or body.get("kind") != kind:
        raise Refused(400, "the API version or kind in the data does not match the expected one")


def _cluster_spec(name: str, spec: Mapping[str, Any], where: str) -> None:
    checks.known(name, where, spec, _CLUSTER)
    head = spec.get("headGroupSpec")
    if not head:
        raise checks.invalid("RayCluster", name, f"{where}.headGroupSpec: Required value")
    checks.known(name, f"{where}.headGroupSpec", head, _HEAD)
    if head.get("serviceType", "") not in _SERVICE_TYPES:
        raise checks.invalid("RayCluster", name, f"serviceType: {head['serviceType']!r}")
    groups = spec.get("workerGroupSpecs") or []
    for group in groups:
        checks.known(name, f"{where}.workerGroupSpecs", group, _WORKER)
        if group["minReplicas"] > group["maxReplicas"]:
            raise checks.invalid("RayCluster", name, f"{group['groupName']}: minReplicas")
    for group in (head, *groups):
        _group(name, group)


def _group(name: str, group: Mapping[str, Any]) -> None:
    params = group.get("rayStartParams")
    if not isinstance(params, dict) or not all(isinstance(v, str) for v in params.values()):
        raise checks.invalid("RayCluster", name, f"rayStartParams: must be strings: {params!r}")
    pod = group["template"]["spec"]
    volumes = [volume.get("name") for volume in pod.get("volumes") or ()]
    for container in pod["containers"]:
        checks.known(name, "containers", container, _CONTAINER)
        for variable in container.get("env") or ():
            if not isinstance(variable.get("value", ""), str):
                raise checks.invalid("RayCluster", name, f"env: must be a string: {variable!r}")
        for mount in container.get("volumeMounts") or ():
            if mount["name"] not in volumes:
                raise checks.invalid("RayCluster", name, f"volumeMounts: Not found: {mount!r}")
