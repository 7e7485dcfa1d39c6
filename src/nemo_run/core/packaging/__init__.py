"""Packagers: which code travels with a task."""

from nemo_run.core.packaging.base import Packager

__all__ = ["Packager"]
