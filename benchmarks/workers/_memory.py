"""How much memory this process took. Imports little, as that would be counted."""

import sys


def peak_memory_mb() -> float:
    """Return the most memory this process had resident, not counting its children."""
    if sys.platform == "linux":
        with open("/proc/self/status") as status:  # noqa: PTH123 - see above
            fields = dict(line.split(":", 1) for line in status)
        return int(fields["VmHWM"].split()[0]) * 1024 / 1e6
    import resource

    # Less exact: a child starts out with the peak of the process that started it.
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1e6 if sys.platform == "darwin" else peak * 1024 / 1e6
