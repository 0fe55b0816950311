"""Tasks in processes."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest
from threadpoolctl import threadpool_info

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


def count_threads(task, news, should_stop):
    news(0, None, "begun")
    return task, {pool["num_threads"] for pool in threadpool_info()}


def test_processes_take_the_longest_task_first_and_a_core_each():
    told = []
    results = dict(
        run_tasks(
            count_threads,
            ["a", "b", "c", "d"],
            n_jobs=2,
            costs=[0.1, 3, 0.2, 2],
            news=lambda place, *_: told.append(place),
        )
    )
    assert told[0] in {1, 3}
    assert results == {place: (task, {1}) for place, task in enumerate("abcd")}


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


@pytest.mark.skipif(not os.path.exists("/proc/self"), reason="looks for processes in /proc")
def test_processes_end_when_the_first_one_is_killed(tmp_path):
    code = """
import sys, pathlib
sys.path.insert(0, sys.argv[1])
from test_parallel import note_and_wait
from driftree.evaluate.parallel import run_tasks
if __name__ == "__main__":
    list(run_tasks(note_and_wait, [sys.argv[2] + "/0", sys.argv[2] + "/1"], n_jobs=2))
"""
    script = tmp_path / "script.py"
    script.write_text(code)
    folder = os.path.dirname(__file__)
    process = subprocess.Popen([sys.executable, str(script), folder, str(tmp_path)])
    notes = [tmp_path / "0", tmp_path / "1"]
    while not all(note.exists() and note.read_text() for note in notes):
        assert process.poll() is None
        time.sleep(0.01)
    process.kill()
    process.wait()
    for note in notes:
        for _ in range(1000):
            if not os.path.exists(f"/proc/{note.read_text()}"):
                break
            time.sleep(0.01)
        else:
            pytest.fail("a process is still there, and nobody waits for it")


def note_and_wait(task, news, should_stop):
    with open(task, "w") as file:
        file.write(str(os.getpid()))
    time.sleep(600)
