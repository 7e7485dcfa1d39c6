"""What a replica runs: program, environment, retries, time limit, slots."""

from __future__ import annotations

import numbers
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from nemo_run._backends.local import supervisor as local_supervisor
from nemo_run.exceptions import (
    ConfigError,
)


@dataclass(frozen=True, kw_only=True)
class SlotRequest:
    """``count`` out of the named slots of a pool, such as GPUs or a number of jobs at a time.

    Slots are granted in request order. Slots are per user and machine, and belong to one attempt:
    they are given back between attempts, and by the kernel if all their holders are killed.

    Attributes:
        env: a variable that gets the names of the slots taken, separated by commas.
    """

    pool: str
    count: int
    names: tuple[str, ...]
    env: str = ""

    def __post_init__(self) -> None:
        words = (self.pool, self.env, *self.names)
        if not self.pool or any(set(word) & set("/\t\0 \n") or word[:1] == "." for word in words):
            raise ConfigError(f"Slot pool {self.pool!r}: names may hold no slash and no blank.")
        if self.pool and {"mutex", "queue"} & set(self.names):
            raise ConfigError(f"Slot pool {self.pool!r}: 'mutex' and 'queue' cannot be slots.")
        if len(set(self.names)) != len(self.names):
            raise ConfigError(f"Slot pool {self.pool!r}: the names of slots must differ.")
        if not 1 <= self.count <= len(self.names):
            raise ConfigError(
                f"Slot pool {self.pool!r} has {len(self.names)} slots; "
                f"{self.count} were asked for, which would never be given."
            )

    @classmethod
    def jobs(cls, at_a_time: int, *, pool: str = "jobs") -> SlotRequest:
        """One of ``at_a_time`` places."""
        return cls(pool=pool, count=1, names=tuple(map(str, range(at_a_time))))

    @classmethod
    def gpus(cls, count: int, names: tuple[str, ...]) -> SlotRequest:
        """``count`` of the GPUs ``names``, seen by the task through ``CUDA_VISIBLE_DEVICES``."""
        return cls(pool="gpu", count=count, names=names, env="CUDA_VISIBLE_DEVICES")


@dataclass(frozen=True, kw_only=True)
class ReplicaSpec:
    """What to run and how often.

    Attributes:
        env: the whole environment; ``NEMO_RUN_ATTEMPT`` (from 1) and a mark of ours are added.
        retries: how many more attempts follow a non-zero exit code.
        backoff_s: the pause before the first retry, doubled before each further one.
        backoff_cap_s: the longest pause.
        time_limit_s: for each attempt; reaching it is a failure that is not retried.
        grace_s: between TERM and KILL.
        separate: standard output and standard error in files of their own, and no ``combined.log``.
        slots: what to wait for before each attempt.
        slots_dir: where the slots are; by default a directory of this user on this machine.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    retries: int = 0
    backoff_s: float = 1.0
    backoff_cap_s: float = 60.0
    time_limit_s: float | None = None
    grace_s: float = 10.0
    separate: bool = False
    slots: tuple[SlotRequest, ...] | None = None
    slots_dir: str | None = None

    def __post_init__(self) -> None:
        if not self.argv or not self.argv[0]:
            raise ConfigError("A replica needs a program to run; argv is empty.")
        if any("\0" in text for text in (*self.argv, *self.env, *self.env.values(), self.cwd)):
            raise ConfigError(f"A NUL character cannot be passed to {self.argv[0]!r}.")
        if any(not name or "=" in name for name in self.env):
            raise ConfigError("The name of an environment variable is empty or holds '='.")
        if not Path(self.cwd).is_absolute():
            raise ConfigError(f"cwd must be an absolute path, not {self.cwd!r}.")
        if not isinstance(self.retries, numbers.Integral):
            raise ConfigError(f"retries is a whole number, not {self.retries!r}.")
        if not isinstance(self.time_limit_s, (numbers.Real, type(None))):
            raise ConfigError(f"time_limit_s is a number of seconds, not {self.time_limit_s!r}.")
        for name in ("retries", "backoff_s", "backoff_cap_s", "grace_s"):
            value = getattr(self, name)
            if not value >= 0:
                raise ConfigError(f"{name} must not be negative, not {value!r}.")
        if self.time_limit_s is not None and not self.time_limit_s > 0:
            raise ConfigError(
                f"time_limit_s={self.time_limit_s!r} leaves no time to run. "
                "Give seconds, or None for no limit."
            )

    def pack(self) -> bytes:
        """Encode for the supervisor, as bytes the kernel will see."""
        number = {
            b"retries": self.retries,
            b"backoff_s": self.backoff_s,
            b"backoff_cap_s": self.backoff_cap_s,
            b"grace_s": self.grace_s,
            b"time_limit_s": "" if self.time_limit_s is None else self.time_limit_s,
            b"separate": int(self.separate),
        }
        slots = [
            "\t".join([slot.pool, str(slot.count), slot.env, *slot.names])
            for slot in self.slots or ()
        ]
        return local_supervisor.pack(
            [
                *((b"argv", os.fsencode(arg)) for arg in self.argv),
                *((b"env", os.fsencode(f"{key}={value}")) for key, value in self.env.items()),
                *((key, str(value).encode()) for key, value in number.items()),
                *((b"slot", os.fsencode(slot)) for slot in slots),
                (b"cwd", os.fsencode(self.cwd)),
                (b"slots_dir", os.fsencode(self.slots_dir or "")),
            ]
        )
