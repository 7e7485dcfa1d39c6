"""Devspaces: a machine of a cluster to work on, by ssh, an editor or Jupyter."""

from __future__ import annotations

from nemo_run.devspace.base import DevSpace

__all__ = ["DevSpace"]
