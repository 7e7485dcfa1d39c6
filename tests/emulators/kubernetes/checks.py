"""What the API server refuses: names, and objects that do not fit their schema."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from tests.emulators.http import Refused

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_LABEL_KEY = re.compile(r"([a-z0-9.-]+/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_QUANTITY = re.compile(r"[0-9]+(\.[0-9]+)?(m|k|Ki|M|Mi|G|Gi|T|Ti)?")
_VARIABLE = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")

_SPEC = {"runtimeRef", "trainer", "initializer", "labels", "annotations", "podTemplateOverrides"}
_SPEC |= {"suspend", "managedBy"}
_TRAINER = {"image", "command", "args", "env", "numNodes", "numProcPerNode", "resourcesPerNode"}
_OVERRIDE = {"targetJobs", "metadata", "spec"}
_OVERRIDE_SPEC = {"serviceAccountName", "nodeSelector", "tolerations", "affinity", "volumes"}
_OVERRIDE_SPEC |= {"initContainers", "containers", "schedulingGates", "imagePullSecrets"}
_OVERRIDE_CONTAINER = {"name", "env", "volumeMounts"}
_MOST_OBJECT_BYTES = 1_500_000
_MOST_SECRET_BYTES = 1 << 20


def metadata(body: Mapping[str, Any], kind: str, *, longest: int = 253) -> None:
    given = body.get("metadata") or {}
    name = given.get("name") or ""
    if not _LABEL.fullmatch(name) or len(name) > longest:
        raise invalid(kind, name, f"metadata.name: Invalid value: {name!r}")
    for key, value in (given.get("labels") or {}).items():
        if not _LABEL_KEY.fullmatch(key) or not _LABEL_VALUE.fullmatch(value):
            raise invalid(kind, name, f"metadata.labels: Invalid value: {key}={value!r}")
    if len(json.dumps(body)) > _MOST_OBJECT_BYTES:
        raise Refused(413, "etcdserver: request is too large")


def secret(body: Mapping[str, Any]) -> None:
    metadata(body, "Secret")
    if sum(map(len, (body.get("data") or {}).values())) * 3 // 4 > _MOST_SECRET_BYTES:
        raise invalid("Secret", body["metadata"]["name"], "data: Too long: at most 1048576")


def trainjob(body: Mapping[str, Any]) -> None:
    # Names of its pods are this one and some twenty characters more.
    metadata(body, "TrainJob", longest=63 - 22)
    name = body["metadata"]["name"]
    if body.get("apiVersion") != "trainer.kubeflow.org/v1alpha1" or body.get("kind") != "TrainJob":
        raise Refused(400, "the API version or kind in the data does not match the expected one")
    spec = body.get("spec") or {}
    known(name, "spec", spec, _SPEC)
    if not (spec.get("runtimeRef") or {}).get("name"):
        raise invalid("TrainJob", name, "spec.runtimeRef.name: Required value")
    _check_trainer(name, spec.get("trainer") or {})
    for entry in spec.get("podTemplateOverrides") or ():
        _check_override(name, entry)


def _check_trainer(name: str, trainer: Mapping[str, Any]) -> None:
    known(name, "spec.trainer", trainer, _TRAINER)
    nodes = trainer.get("numNodes", 1)
    if not isinstance(nodes, int) or nodes < 1:
        raise invalid("TrainJob", name, f"spec.trainer.numNodes: Invalid value: {nodes!r}")
    for key in ("command", "args"):
        if not all(isinstance(word, str) for word in trainer.get(key) or ()):
            raise invalid("TrainJob", name, f"spec.trainer.{key}: must be strings")
    for variable in trainer.get("env") or ():
        if not _VARIABLE.fullmatch(variable.get("name") or ""):
            raise invalid("TrainJob", name, f"spec.trainer.env: Invalid value: {variable!r}")
        if not isinstance(variable.get("value", ""), str):
            raise invalid("TrainJob", name, f"spec.trainer.env: must be a string: {variable!r}")
    resources = trainer.get("resourcesPerNode") or {}
    known(name, "spec.trainer.resourcesPerNode", resources, {"requests", "limits"})
    for side in resources.values():
        for key, amount in side.items():
            if not isinstance(amount, str) or not _QUANTITY.fullmatch(amount):
                raise invalid("TrainJob", name, f"{key}: quantities must match: {amount!r}")


def _check_override(name: str, entry: Mapping[str, Any]) -> None:
    known(name, "spec.podTemplateOverrides", entry, _OVERRIDE)
    if not entry.get("targetJobs"):
        raise invalid("TrainJob", name, "spec.podTemplateOverrides.targetJobs: Required value")
    spec = entry.get("spec") or {}
    known(name, "spec.podTemplateOverrides.spec", spec, _OVERRIDE_SPEC)
    names = [volume.get("name") for volume in spec.get("volumes") or ()]
    if len(set(names)) != len(names):
        raise invalid("TrainJob", name, f"volumes: Duplicate value: {names}")
    for container in spec.get("containers") or ():
        known(name, "containers", container, _OVERRIDE_CONTAINER)
        mounts = container.get("volumeMounts") or ()
        if lost := [item["name"] for item in mounts if item["name"] not in names]:
            raise invalid("TrainJob", name, f"volumeMounts.name: Not found: {lost}")
        paths = [item["mountPath"] for item in mounts]
        if len(set(paths)) != len(paths):
            raise invalid("TrainJob", name, f"volumeMounts: must be unique: {paths}")


def known(name: str, where: str, given: Mapping[str, Any], allowed: set[str]) -> None:
    if unknown := sorted(set(given) - allowed):
        raise Refused(400, f"strict decoding error: unknown field {where}.{unknown[0]} of {name}")


def invalid(kind: str, name: str, why: str) -> Refused:
    return Refused(422, f'{kind} "{name}" is invalid: {why}')


def matches(labels: Mapping[str, str], selector: str) -> bool:
    """Tell whether labels are what a selector of the form ``a=b,c=d`` asks for."""
    pairs: Sequence[str] = [part for part in selector.split(",") if part]
    return all(
        labels.get(key) == value for key, _, value in (part.partition("=") for part in pairs)
    )
