"""Run:ai: its control plane, and the Kubernetes API of a cluster that trusts its tokens.

A workload becomes one process tree for each pod, with volumes as directories, and goes through the
phases that a real one goes through.
"""

from tests.emulators.runai.emulator import CLIENT_ID, CLIENT_SECRET, RunaiEmulator
from tests.emulators.runai.workloads import Pace

__all__ = ["CLIENT_ID", "CLIENT_SECRET", "Pace", "RunaiEmulator"]
