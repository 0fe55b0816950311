"""Patience: how long a search may take, for those who cannot wait for its end."""

from __future__ import annotations

import math
import time
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_deadline: ContextVar[float] = ContextVar("deadline of a search", default=math.inf)


@contextmanager
def patience(seconds: float) -> Iterator[None]:
    """Let every search of this thread in the block raise `TimeoutError` when the time is over.

    Examples
    --------
    >>> with patience(0):
    ...     check_time()
    Traceback (most recent call last):
    TimeoutError: the search took longer than it may
    """
    before = _deadline.set(time.monotonic() + seconds)
    try:
        yield
    finally:
        _deadline.reset(before)


def check_time() -> None:
    """Raise if the time is over."""
    if time.monotonic() >= _deadline.get():
        raise TimeoutError("the search took longer than it may")
