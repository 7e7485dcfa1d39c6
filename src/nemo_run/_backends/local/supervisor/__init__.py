"""Run one process of a local job to its end, whichever other process is killed meanwhile.

Three processes take part, each in a session of its own, and one that is there for many replicas::

    fork server  started by ``fork_server`` as ``python -I -S``; forks supervisors, knows no more
    supervisor   takes slots, starts attempts, applies retries, time limit and cancelling
      keeper     a fork of the supervisor: waits for one attempt and writes down how it ended
        task     the user's program, leader of its own session and process group

What is known is in ``<replica>/.replica/``. Every file that matters appears whole, by a rename:

    lock                 flock: held by the supervisor
    keeper.lock          flock: held by the keeper, and by the task until its program is executed
    spec                 what to run, with its environment; 0600, removed at the end
    status               what the supervisor last said; final once the replica has ended
    attempt-N.ready      attempt N is about to be started; the space for the next file
    attempt-N.started    attempt N runs or ran; written by the task itself just before ``execve``
    attempt-N.expired    the same, after the time limit was reached and before it is told to end
    ….exit.CODE          one of the last two, after the attempt ended; a rename needs no disk space
    cancel               a user asked for the end; made before anything is told to end
    clock                how long the log was when; the one file that is appended to. With separate
                         streams there are clock.stdout and clock.stderr instead

Why no attempt runs twice and no exit code is lost:

1. Only the holder of ``lock`` starts attempts, and only while it can take ``keeper.lock``. Both
   the keeper and the unborn task inherit that lock, so taking it proves that none is left that
   could still write ``started``. Without that file the attempt never ran; with it, it is never
   run again.
2. The keeper looks at the task's exit code without reaping it, writes it down, and leaves. If it is
   killed before that, the task (alive or a zombie) passes to the supervisor, a child subreaper,
   which writes instead. If the supervisor is killed the keeper does not notice. Only when both are
   killed while the task lives is the exit code unknown, and then we say so.
3. Keeper and supervisor are child subreapers: what a task starts stays below one of them, whatever
   session or environment it makes for itself. Unless the task succeeded all of it is ended: by the
   supervisor above the keeper, or by the keeper if that supervisor was killed. Only if both are
   killed can a process that left group, session and environment no longer be told from others.
4. A process is its id, its start time and the boot of its machine. Ids are reused, all three
   together are not.

The task's output goes straight to files opened for appending: no pipe through a process that could
die, nothing copied. Unless the streams are asked for separately both go to ``combined.log``: the
order is exact, every byte is stored once, and ``stdout.log`` and ``stderr.log`` are links to it, so
a traceback is found in either. With ``separate`` there is no ``combined.log``,
since the order between two files is not known.
"""

# The launcher of a replica waits for this import. That is why nothing in this package uses pathlib,
# which alone would double the time, or contextlib; and why the supervisor itself comes later.

from .decide import End, Start, decide
from .disk import (
    NONSENSE,
    explain,
    find_program,
    machine_directory,
    make_private_directory,
    open_regular,
    raise_trouble,
)
from .files import KEEPER_LOCK, LOCK, SPEC, STATE_DIR, STATUS, Files, has_contents
from .fork_server import main
from .processes import ATTENDANT, Process, birth_of, distance, here, processes_of
from .records import FINAL, STATUS_SIZE, Attempt, Spec, Status, pack
from .takeover import is_attended
from .title import PLACEHOLDER

__all__ = [
    "NONSENSE",
    "ATTENDANT",
    "FINAL",
    "KEEPER_LOCK",
    "LOCK",
    "PLACEHOLDER",
    "SPEC",
    "STATE_DIR",
    "STATUS",
    "STATUS_SIZE",
    "Attempt",
    "End",
    "Files",
    "Process",
    "Spec",
    "Start",
    "Status",
    "birth_of",
    "decide",
    "distance",
    "explain",
    "raise_trouble",
    "find_program",
    "has_contents",
    "here",
    "is_attended",
    "machine_directory",
    "main",
    "make_private_directory",
    "open_regular",
    "pack",
    "processes_of",
]
