"""What the files of a replica say: what to run, what became of it, how its attempts went."""

from __future__ import annotations

import os

from .processes import Process, birth_of, distance, here

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

FINAL = ("succeeded", "failed", "cancelled")
# Reserved ahead for every status, so that the end can be written on a full disk.
STATUS_SIZE = 4096


class Spec:
    """What to run and how, as bytes all the way: nothing is decoded that the kernel would not."""

    def __init__(self, data: bytes) -> None:
        """Read what ``pack`` wrote; ValueError if it was cut short."""
        fields = data.split(b"\0")
        if fields[-2:] != [b"end=", b""]:
            raise ValueError("the description of the replica is incomplete")
        self.data = data
        self.argv: list[bytes] = []
        self.env: dict[bytes, bytes] = {}
        self.slots: list[SlotRequest] = []
        single: dict[bytes, bytes] = {}
        for field in fields[:-2]:
            key, _, value = field.partition(b"=")
            if key == b"argv":
                self.argv.append(value)
            elif key == b"env":
                name, _, text = value.partition(b"=")
                self.env[name] = text
            elif key == b"slot":
                self.slots.append(SlotRequest(value))
            else:
                single[key] = value
        self.cwd = single[b"cwd"]
        self.retries = int(single[b"retries"])
        self.backoff_s = float(single[b"backoff_s"])
        self.backoff_cap_s = float(single[b"backoff_cap_s"])
        self.time_limit_s = float(single[b"time_limit_s"]) if single[b"time_limit_s"] else None
        self.grace_s = float(single[b"grace_s"])
        self.separate = single[b"separate"] == b"1"
        self.slots_dir = single[b"slots_dir"]
        self.umask = int(single[b"umask"], 8) if b"umask" in single else None

    def with_umask(self, umask: int) -> Spec:
        """Remember the launcher's umask, for supervisors that another process starts later."""
        if self.umask is not None:
            return self
        return Spec(self.data[: -len(b"end=\0")] + pack([(b"umask", b"%o" % umask)]))

    def pause_before(self, attempt: int) -> float:
        """Seconds between the end of the attempt before and the start of ``attempt``."""
        if attempt < 2:
            return 0.0
        # Beyond 2**60 the cap decides anyway, and a float would overflow.
        return min(self.backoff_cap_s, self.backoff_s * 2.0 ** min(attempt - 2, 60))


class SlotRequest:
    """``count`` of the named slots of a pool; their names go to the variable ``env``, if any."""

    def __init__(self, data: bytes) -> None:
        pool, count, env, *names = data.split(b"\t")
        self.pool = pool
        self.count = int(count)
        self.env = env
        self.names = names


def pack(fields: Sequence[tuple[bytes, bytes]]) -> bytes:
    """Encode fields as ``Spec`` reads them. Neither arguments nor environments can hold a NUL."""
    return b"".join(key + b"=" + value + b"\0" for key, value in (*fields, (b"end", b"")))


class Status:
    """What the supervisor last said about the replica."""

    def __init__(self, *, token: str, attempts: int, limit_s: float | None, grace_s: float) -> None:
        self.token = token
        self.attempts = attempts
        self.limit_s = limit_s
        self.grace_s = grace_s
        self.place = here()
        self.supervisor = Process(os.getpid(), birth_of(os.getpid()))
        self.state = "pending"
        self.attempt = 0
        self.exit_code: int | None = None
        self.pid: int | None = None
        self.started_at: float | None = None
        self.ended_at: float | None = None
        self.cpu_s: float | None = None
        self.peak_kib: int | None = None
        self.message = ""

    def render(self) -> bytes:
        lines = [
            "format 1",
            f"token {self.token}",
            f"attempts {self.attempts}",
            f"limit_s {_text(self.limit_s)}",
            f"grace_s {self.grace_s}",
            f"place {self.place}",
            f"supervisor {self.supervisor.pid} {self.supervisor.birth}",
            f"state {self.state}",
            f"attempt {self.attempt}",
            f"exit_code {_text(self.exit_code)}",
            f"pid {_text(self.pid)}",
            f"started_at {_text(self.started_at)}",
            f"ended_at {_text(self.ended_at)}",
            f"cpu_s {_text(self.cpu_s)}",
            f"peak_kib {_text(self.peak_kib)}",
            f"message {' '.join(self.message.split())}",
        ]
        return "\n".join(lines).encode("utf-8", "replace")[: STATUS_SIZE - 1] + b"\n"

    @classmethod
    def parse(cls, data: bytes) -> Status:
        lines = data.decode("utf-8", "replace").rstrip("\n").split("\n")
        fields = {key: value for key, _, value in (line.partition(" ") for line in lines)}
        status = cls.__new__(cls)
        status.token = fields["token"]
        status.attempts = int(fields["attempts"])
        status.limit_s = _number(fields["limit_s"])
        status.grace_s = float(fields["grace_s"])
        status.place = fields["place"]
        status.supervisor = Process.parse(fields["supervisor"])
        status.state = fields["state"]
        status.attempt = int(fields["attempt"])
        status.exit_code = int(fields["exit_code"]) if fields["exit_code"] else None
        status.pid = int(fields["pid"]) if fields["pid"] else None
        status.started_at = _number(fields["started_at"])
        status.ended_at = _number(fields["ended_at"])
        # Not in what a version before this one wrote.
        status.cpu_s = _number(fields.get("cpu_s", ""))
        peak_kib = fields.get("peak_kib", "")
        status.peak_kib = int(peak_kib) if peak_kib else None
        status.message = fields.get("message", "")
        return status


def _text(value: float | None) -> str:
    return "" if value is None else str(value)


def _number(text: str) -> float | None:
    return float(text) if text else None


class Attempt:
    """One run of the program, as its file tells."""

    def __init__(self, name: str, data: bytes) -> None:
        self.name = name
        self.number, kind, self.exit_code = split_name(name)
        self.expired = kind == "expired"
        self.ended_at: float | None = None
        lines = data.decode("utf-8", "replace").split("\n")
        self.task = Process.parse(lines[0])
        self.keeper = Process.parse(lines[1])
        self.place = lines[2]
        self.started_at = float(lines[3])
        self.clock_s = float(lines[4])  # monotonic: a laptop's sleep is no part of a time limit
        self.slots = lines[5]
        # Written at the end by what recorded it; None if a version before this one did.
        self.cancelled: bool | None = None
        self.took_s: float | None = None
        # Where its output begins in the log, or in those of both streams; older ones do not say.
        self.log_from: list[int] = []
        end: list[str] = []
        for words in (line.split(" ") for line in lines[6:]):
            if words[0] == "log":
                self.log_from = [int(word) for word in words[1:]]
            elif words[0] == "end" and not end:
                end = words
        if self.exit_code is not None and len(end) == 3 and end[1] in ("free", "cancelled"):
            self.cancelled = end[1] == "cancelled"
            self.took_s = float(end[2]) - self.clock_s

    def ended(self, modified_at: float) -> None:
        """Note when it ended: as the file says, but not before its start if the clock was set."""
        self.ended_at = max(modified_at, self.started_at + (self.took_s or 0.0))

    def ended_before(self, cancelled_at: float) -> bool:
        """Whether it ended by itself before the end was asked for.

        What recorded the end saw whether the request was there. Times are compared only for what an
        older version recorded: the clock may have been set in between.
        """
        if self.cancelled is not None:
            return not self.cancelled
        return self.ended_at is not None and self.ended_at < cancelled_at

    def is_running(self) -> bool:
        """Whether the task or its keeper lives, as far as can be seen from here."""
        if self.exit_code is not None or distance(self.place) == "gone":
            return False
        return self.keeper.is_alive() or self.task.is_alive()


def split_name(name: str) -> tuple[int, str, int | None]:
    """Number, kind and exit code of the attempt a file tells of; number 0 if it tells of none."""
    stem, _, rest = name.partition(".")
    kind, _, code = rest.partition(".exit.")
    if not stem.startswith("attempt-") or kind not in ("started", "expired"):
        return 0, "", None
    return int(stem[len("attempt-") :]), kind, int(code) if code else None
