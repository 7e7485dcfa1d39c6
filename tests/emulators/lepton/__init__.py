"""DGX Cloud Lepton: the workspace API that both generations of the vendor's client call.

It is driven through the real client, pointed here by `LeptonEmulator.environment`. A job becomes
one process tree for each replica, and goes through the states that a real one goes through.
"""

from tests.emulators.lepton.emulator import TOKEN, LeptonEmulator
from tests.emulators.lepton.jobs import Pace

__all__ = ["TOKEN", "LeptonEmulator", "Pace"]
