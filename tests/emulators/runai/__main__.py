"""Try the DGX Cloud executor without an account: ``python -m tests.emulators.runai``."""

from tests.emulators.runai import RunaiEmulator
from tests.emulators.service import serve

serve(lambda directory, port: RunaiEmulator(directory, port=port), __doc__)
