"""Name and version of the package, as written into every experiment."""

MAJOR = 0
MINOR = 12
PATCH = 0
PRE_RELEASE = ""

VERSION = (MAJOR, MINOR, PATCH, PRE_RELEASE)

__shortversion__ = "0.12.0"
__version__ = __shortversion__ + PRE_RELEASE

__package_name__ = "nemo_run"
__description__ = "Configure a machine-learning task once and run it anywhere"
__license__ = "Apache-2.0"
