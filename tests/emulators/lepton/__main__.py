"""Try the Lepton executor without an account: ``python -m tests.emulators.lepton``."""

from tests.emulators.lepton import LeptonEmulator
from tests.emulators.service import serve

serve(lambda directory, port: LeptonEmulator(directory, port=port), __doc__)
