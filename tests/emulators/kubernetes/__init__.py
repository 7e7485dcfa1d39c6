"""Kubernetes with Kubeflow Trainer: the API that its own client speaks, and who acts on it.

A TrainJob becomes the pods of a JobSet; a pod becomes a process tree, with volumes as directories,
which is started again, watched and ended as a kubelet and the controllers would.
"""

from tests.emulators.kubernetes.emulator import TOKEN, KubernetesEmulator
from tests.emulators.kubernetes.pods import Pace

__all__ = ["TOKEN", "KubernetesEmulator", "Pace"]
