"""Factories, entrypoints and plug-ins, by name."""
