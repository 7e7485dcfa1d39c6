"""An executor whose backend does not like to be asked often."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import nemo_run as run
from nemo_run.core.execution.base import Capabilities


@dataclass(kw_only=True)
class SeldomAsked(run.LocalExecutor):
    """Runs tasks on this machine, and is looked at every ten minutes."""

    CAPABILITIES: ClassVar[Capabilities] = replace(
        run.LocalExecutor.CAPABILITIES, poll_s=(600.0, 600.0)
    )
