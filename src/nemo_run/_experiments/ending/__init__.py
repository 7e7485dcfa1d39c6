"""How a program ends that launched jobs: what it has not looked at, and its exit code."""
