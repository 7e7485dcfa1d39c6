"""Experiments on disk: written, read back, listed."""
