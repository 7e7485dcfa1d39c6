"""Launchers as torchx components: a program in, an application out."""

from typing import TYPE_CHECKING

from nemo_run._later import on_demand

if not TYPE_CHECKING:  # to a type checker, any name would exist
    __getattr__ = on_demand(__name__, "ft_launcher", "torchrun")
