"""Everything that can happen to one experiment, at random."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from tests import patience
from tests.faults.injection import Injection
from tests.integration import test_local_chaos as chaos
from tests.integration.launching import conductors, kill, start, supervisors

CALMING = ("fail", "fail", "calm", "clock", "stop", "look")


class Storm(chaos.Storm):
    """Calls fail, clocks jump, processes are stopped or killed, others look.

    Attributes:
        failing: whose calls fail, see `Injection`.
        actions: what may happen, each as likely as often it is named.
        longest_s: how long it may rage.
    """

    failing: tuple[str, ...] = ("launcher", "conductor", "supervisor")
    actions: tuple[str, ...] = (*CALMING, "kill", "kill")
    killing: tuple[str, ...] = ("launcher", "supervisor", "task")
    longest_s = 30.0

    def __init__(
        self, path: Path, arguments: list[str], rng: random.Random, injection: Injection
    ) -> None:
        self.injection = injection
        self.stopped: list[tuple[float, int]] = []
        self.observers: list[subprocess.Popen[str]] = []
        super().__init__(path, arguments, rng)

    def rage_on(self, kills: int) -> Counter[str]:
        """Go on until the experiment has ended; return what was done how often."""
        done: Counter[str] = Counter()
        deadline = time.monotonic() + self.longest_s
        while time.monotonic() < deadline:
            time.sleep(self.rng.uniform(0.0, 0.25))
            if self.launcher.poll() is not None and not conductors():
                if chaos.ended(self.title):
                    break
                self.launcher = start(self.path, *self.arguments, "resume")
                done["resumed"] += 1
            action = self.rng.choice(self.actions)
            done[self._act(action, kills - done["killed"])] += 1
            self._go_on(now=time.monotonic())
        return done

    def _act(self, action: str, kills: int) -> str:
        """Do something; return what was done."""
        if action == "fail":
            rates = {role: self.rng.choice([0, 20000, 100000]) for role in self.failing}
            self.injection.often(**rates)
        elif action == "calm":
            self.injection.often()
        elif action == "clock":
            self.injection.set_clock(self.rng.choice([-3600, -5, 0, 5, 3600]))
        elif action == "stop":
            return self._stop()
        elif action == "look":
            self._look()
        elif kills > 0 and self._kill_one():
            return "killed"
        return f"{action}ed" if action != "kill" else "none to kill"

    def _kill_one(self) -> bool:
        kind = self.rng.choice(self.killing)
        pids = self._candidates(kind)
        return bool(pids) and self._kill(kind, self.rng.choice(pids))

    def _stop(self) -> str:
        pids = [*conductors(), *supervisors()]
        if not pids:
            return "none to stop"
        pid = self.rng.choice(pids)
        kill(pid, signal.SIGSTOP)
        self.stopped.append((time.monotonic() + self.rng.uniform(0.1, 1.5), pid))
        return "stopped"

    def _go_on(self, now: float) -> None:
        for until, pid in self.stopped[:]:
            if until <= now:
                kill(pid, signal.SIGCONT)
                self.stopped.remove((until, pid))

    def _look(self) -> None:
        """Have another process look, one at a time, to which nothing happens."""
        if any(observer.poll() is None for observer in self.observers):
            return
        words = self.rng.choice([("status", self.title), ("list",), ("logs", self.title, "job0")])
        command = [sys.executable, "-m", "nemo_run", "experiment", *words]
        env = {key: value for key, value in os.environ.items() if key != "LD_PRELOAD"}
        with (self.notes.parent / "looked.out").open("a") as out:
            self.observers.append(
                subprocess.Popen(command, env=env, stdout=out, stderr=out, text=True)
            )

    def clear_up(self) -> None:
        """End all trouble; what looked on must have seen something."""
        self.injection.often()
        self.injection.set_clock(0)
        self._go_on(now=float("inf"))
        for observer in self.observers:
            with contextlib.suppress(subprocess.TimeoutExpired):
                observer.wait(patience.seconds(60))
        said = (self.notes.parent / "looked.out").read_text() if self.observers else ""
        assert "Traceback" not in said, said
        assert all(observer.returncode in (0, 1) for observer in self.observers), said
