"""Tasks as torchx applications, and the schedulers that run them."""

from typing import TYPE_CHECKING

from nemo_run._later import on_demand

if not TYPE_CHECKING:  # to a type checker, any name would exist
    __getattr__ = on_demand(__name__, "components", "launcher", "packaging", "runner", "schedulers")
