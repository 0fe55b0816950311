"""Tasks in parallel, each in a process of its own, with their progress."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from contextlib import contextmanager
from multiprocessing import connection
from typing import Any, Protocol, TypeVar

from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

Task = TypeVar("Task")
Result = TypeVar("Result")
News = Callable[[int, int | None, str], None]  # rows done, rows in all if known, words


class Work(Protocol):
    """What to do with a task, in any process; call `should_stop` now and then."""

    def __call__(self, task: Any, news: News, should_stop: Callable[[], bool]) -> Any:
        """Return the task's result."""


def run_tasks(
    work: Work,
    tasks: Sequence[Any],
    *,
    n_jobs: int = 1,
    costs: Sequence[float] | None = None,
    asked: Callable[[], None] = lambda: None,
    news: Callable[[int, int, int | None, str], None] = lambda *_: None,
) -> Iterator[tuple[int, Any]]:
    """Run all tasks, some in parallel; yield the index and result of each when it is done.

    Ctrl-C asks the tasks to stop, waits until they have, and is then raised as KeyboardInterrupt,
    so that no file is left half-written; a second Ctrl-C does not wait. A process whose parent was
    killed ends itself.

    Parameters
    ----------
    work : callable
        A module-level function, called as ``work(task, news, should_stop)``.
    tasks : sequence
        The tasks.
    n_jobs : int, default=1
        Number of processes. One is this process itself, which is easier to debug.
    costs : sequence of float, optional
        How long each task takes, roughly, in any unit. With several processes the longest start
        first, so that none of them runs alone at the end.
    asked : callable, optional
        Called in this process at the first Ctrl-C.
    news : callable, optional
        Called in this process with the task's index, the rows it has done, the rows in all or None,
        and words.
    """
    if n_jobs < 1:
        raise ValueError(f"n_jobs must be at least 1, got {n_jobs}")
    if n_jobs == 1 or len(tasks) < 2:
        with _ask_to_stop(asked) as stop:
            for i, task in enumerate(tasks):

                def tell(done: int, total: int | None, words: str, place: int = i) -> None:
                    news(place, done, total, words)

                yield i, work(task, tell, stop.is_set)
                if stop.is_set():
                    raise KeyboardInterrupt
    else:
        queue = list(enumerate(tasks))
        if costs is not None:
            queue.sort(key=lambda item: -costs[item[0]])
        yield from _run_in_processes(work, queue, n_jobs, asked, news)


@contextmanager
def _ask_to_stop(asked: Callable[[], None]) -> Iterator[threading.Event]:
    """Turn the first Ctrl-C into a request to stop; this works only in the main thread."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def ask(*_: Any) -> None:
        signal.signal(signal.SIGINT, before)
        stop.set()
        asked()

    before = signal.signal(signal.SIGINT, ask)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)


def _run_in_processes(
    work: Work,
    queue: Sequence[tuple[int, Any]],
    n_jobs: int,
    asked: Callable[[], None],
    news: Callable[[int, int, int | None, str], None],
) -> Iterator[tuple[int, Any]]:
    context = multiprocessing.get_context("spawn")
    letters, stop = context.SimpleQueue(), context.Event()
    pool = ProcessPoolExecutor(
        min(n_jobs, len(queue)), context, initializer=_begin, initargs=(letters, stop)
    )

    def read_letters() -> None:
        while not letters.empty():
            news(*letters.get())

    with pool, _ask_to_stop(asked) as is_asked:
        pending = {pool.submit(_work_there, work, i, task): i for i, task in queue}
        try:
            while pending and not is_asked.is_set():
                done, _ = wait(pending, timeout=0.2, return_when=FIRST_COMPLETED)
                read_letters()
                for future in done:
                    yield pending.pop(future), future.result()
        finally:
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            while not all(future.done() for future in pending):
                wait(pending, timeout=0.2)
                read_letters()  # otherwise a process that writes to a full queue would never end
        if is_asked.is_set():
            raise KeyboardInterrupt


# ---------------------------------------------------------------------- in the processes
_links: dict[str, Any] = {}


def _begin(letters: Any, stop: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    threadpool_limits(1)  # there is already a process per core
    _links.update(letters=letters, stop=stop)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """End this process when its parent was killed."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


def _work_there(work: Work, place: int, task: Any) -> Any:
    def tell(done: int, total: int | None, words: str) -> None:
        _links["letters"].put((place, done, total, words))

    return work(task, tell, _links["stop"].is_set)
