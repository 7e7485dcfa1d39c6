"""What is started for a job on this machine, and how people read it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torchx.schedulers.local_scheduler import PopenRequest

from nemo_run import _shell
from nemo_run._backends.local.spec import SlotRequest
from nemo_run._secrets.masking import mask_environment, masked_arguments


@dataclass
class LocalRequest(PopenRequest):
    """A torchx request, and how often and how long to try."""

    retries: int = 0
    time_limit_s: float | None = None
    separate_streams: bool = False
    slots: tuple[SlotRequest, ...] = ()


def described(request: PopenRequest) -> Iterator[str]:
    """Yield lines that say what would be run, where, with which variables; without secrets."""
    for role, replicas in request.role_params.items():
        for number, replica in enumerate(replicas):
            name = role if len(replicas) == 1 else f"{role}/{number}"
            yield f"{name} runs on this machine:"
            yield f"  {_shell.render(masked_arguments(replica.args))}"
            yield f"  in {replica.cwd}"
            for key, value in mask_environment(replica.env).items():
                yield f"  with {key}={_shell.as_word(value)}"
            yield f"  log: {request.role_log_dirs[role][number]}"
    if isinstance(request, LocalRequest):
        if request.retries:
            yield f"  tried again when it fails: {request.retries} times"
        if request.time_limit_s is not None:
            yield f"  ended after {request.time_limit_s:g} s"
        for slot in request.slots:
            yield f"  waits for {slot.count} of {slot.pool}"
