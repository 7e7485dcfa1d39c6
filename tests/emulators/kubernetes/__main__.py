"""Try the Kubeflow executor without a cluster: ``python -m tests.emulators.kubernetes``."""

from tests.emulators.kubernetes import KubernetesEmulator
from tests.emulators.service import serve

serve(lambda directory, port: KubernetesEmulator(directory, port=port), __doc__)
