"""Measure nemo_run side by side with other launchers: ``python -m benchmarks [names...]``."""
