"""Free cores: how much of the processors other processes take while something is timed (Linux).

Two workers are slowed down by processes of others, one hardly: so ratios are taken of the runs in
which these took least.
"""

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

TICKS = os.sysconf("SC_CLK_TCK")
SAMPLE_SECONDS = 0.25
FREE = 0.1  # cores that others may take


class Timed(NamedTuple):
    """What a call took."""

    seconds: float
    others: float
    """Cores that other processes took meanwhile."""


def timed(call: Callable[[], object]) -> Timed:
    """Call it; return the seconds, and how much of the cores others took."""
    idle, own = idle_seconds(), own_seconds()
    begin = time.perf_counter()
    call()
    seconds = time.perf_counter() - begin
    idle, own = idle_seconds() - idle, own_seconds() - own
    return Timed(seconds, max(0.0, (os.cpu_count() or 1) - (idle + own) / seconds))


def wait_for_cores(patience: float) -> None:
    """Wait until others leave the cores alone, but not longer than so many seconds."""
    end = time.monotonic() + patience
    while timed(lambda: time.sleep(SAMPLE_SECONDS)).others > FREE and time.monotonic() < end:
        time.sleep(SAMPLE_SECONDS)


def idle_seconds() -> float:
    """Return how long the cores were idle or waited for the disk, in total."""
    figures = Path("/proc/stat").read_text().split("\n", 1)[0].split()
    return (int(figures[4]) + int(figures[5])) / TICKS


def own_seconds() -> float:
    """Return what this process and those that it has started have used of the cores."""
    total, family = 0.0, {os.getpid()}
    for pid in sorted(int(folder.name) for folder in Path("/proc").glob("[0-9]*")):
        with contextlib.suppress(OSError):  # it has ended
            if pid in family or int(_figures(pid)[1]) in family:
                family.add(pid)
                total += cpu_seconds(pid)
    return total


def cpu_seconds(pid: int) -> float:
    """Return what a process has used of the processor."""
    figures = _figures(pid)
    return (int(figures[11]) + int(figures[12])) / TICKS


def _figures(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
