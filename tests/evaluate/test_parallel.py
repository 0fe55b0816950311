"""Tasks in processes."""

import os
import signal
import threading
import time

import pytest

from driftree.evaluate.parallel import run_tasks


def square(task, news, should_stop):
    news(task, 10, f"at {task}")
    return task * task, os.getpid()


def fail(task, news, should_stop):
    raise ValueError(f"no {task}")


def wait_to_be_stopped(task, news, should_stop):
    """Count until someone says stop; then write it down, as a run does."""
    path, n = task
    news(0, None, "begun")
    while not should_stop():
        time.sleep(0.01)
        n += 1
    with open(path, "w") as file:
        file.write(str(n))
    return n


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_all_tasks_are_done_and_told_of(n_jobs):
    told = []
    results = dict(
        run_tasks(square, [1, 2, 3], n_jobs=n_jobs, news=lambda *args: told.append(args))
    )
    assert {place: result[0] for place, result in results.items()} == {0: 1, 1: 4, 2: 9}
    is_here = {result[1] == os.getpid() for result in results.values()}
    assert is_here == {n_jobs == 1}
    assert sorted(told) == [(0, 1, 10, "at 1"), (1, 2, 10, "at 2"), (2, 3, 10, "at 3")]


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_an_error_reaches_the_caller(n_jobs):
    with pytest.raises(ValueError, match=r"no [12]"):
        list(run_tasks(fail, [1, 2], n_jobs=n_jobs))


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_ctrl_c_lets_tasks_finish_what_they_write(n_jobs, tmp_path):
    tasks = [(tmp_path / "0", 0), (tmp_path / "1", 0), (tmp_path / "2", 0)]
    begun = []

    def note(place, *_):
        begun.append(place)
        if len(begun) == n_jobs:
            threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()

    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        list(run_tasks(wait_to_be_stopped, tasks, n_jobs=n_jobs, news=note))
    assert signal.getsignal(signal.SIGINT) is handler
    written = [path for path, _ in tasks if path.exists()]
    assert len(written) >= n_jobs  # those under way
    assert all(int(path.read_text()) >= 0 for path in written)


def test_no_process_at_all_is_a_mistake():
    with pytest.raises(ValueError, match="at least 1"):
        list(run_tasks(square, [1], n_jobs=0))
