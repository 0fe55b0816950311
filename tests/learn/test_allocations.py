"""No memory: whichever allocation of the kernels fails, the model is whole and goes on.

A small library in front of the C++ run-time lets the n-th allocation of a call fail, for every n.
It is compiled here and loaded into processes of its own.
"""

import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import stored
from driftree import DynamicModelTreeClassifier

TESTS = Path(__file__).parents[1]
SOURCE = next(TESTS.rglob("failing_new.cpp"))
KINDS = [*stored.MAKERS, "three labels", "waiting"]
COMPILER = shutil.which(os.environ.get("CXX", "c++"))
needs_shim = pytest.mark.skipif(
    sys.platform != "linux" or COMPILER is None or "libasan" in os.environ.get("LD_PRELOAD", ""),
    reason="needs Linux, a C++ compiler, and no sanitizer that has its own allocator",
)


@pytest.fixture(scope="session")
def shim(tmp_path_factory):
    path = tmp_path_factory.mktemp("shim") / "failing_new.so"
    subprocess.run([COMPILER, "-O1", "-shared", "-fPIC", "-o", path, SOURCE], check=True)
    return path


@needs_shim
def test_allocations_may_fail(shim):
    """The first ones of every call, and some of those that follow."""
    fail(shim, "some", *KINDS)


@needs_shim
@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_every_allocation_may_fail(shim, kind):
    fail(shim, "all", kind)


def fail(shim, which, *kinds, least=None):
    done = subprocess.run(
        [sys.executable, __file__, shim, which, *kinds],
        env=os.environ | {"LD_PRELOAD": str(shim), "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    n_failures = dict(zip(kinds, map(int, done.stdout.split()), strict=True))
    assert min(n_failures.values()) >= (least or (100 if which == "some" else 200)), n_failures


@needs_shim
def test_allocations_of_helping_threads_may_fail(shim):
    """The error is raised where the call was made; the model is whole, and so are the threads."""
    fail(shim, "helpers", "paper", least=1)


# ---------------------------------------------------------------------- in the other process
def watch(model):
    """What a row may change beside sums: nodes, trials, grids."""
    engine = model._tree.engine
    if not isinstance(model, DynamicModelTreeClassifier):
        return model.n_nodes_, 0, 0
    last = model.events_[-1].kind if model.events_ else None
    if model.setting == "paper":
        return last, len(model.events_)
    nodes = list(model._tree.walk())
    has_trials = any(engine.trials(node) for node in nodes)
    return last, len(model.events_), has_trials, any(map(engine.grid_is_ready, nodes))


def eventful(kind, columns, y):
    """The rows at which something happens for the first time, and the first rows of all."""
    model = stored.MAKERS[kind](max_nodes=7)
    seen, found = set(), {0, 1, 2}
    for i, label in enumerate(y):
        before = watch(model) if i else None
        model.learn_one({name: column[i] for name, column in columns.items()}, label)
        now = watch(model)
        if before is not None and now != before and (before[0], now[0], now[2:]) not in seen:
            seen.add((before[0], now[0], now[2:]))
            found.add(i)
    return found


def calls(kind, n_labels):
    """Saved models and calls: rows that change something, and all else that allocates."""
    columns, y = stored.draw(3000, n_labels=n_labels)
    wanted = eventful(kind, columns, y)
    model = stored.MAKERS[kind](max_nodes=7)
    for i, label in enumerate(y):
        row = {name: column[i] for name, column in columns.items()}
        if i in wanted:
            yield stored.to_bytes(model), lambda m, row=row, label=label: m.learn_one(row, label)
        model.learn_one(row, label)
        if i == 400:
            grown = stored.to_bytes(model)
    new = {"a": None, "b": 1.0, ("colour", 1): "mauve", "new": 3.0, "text": "x"}
    wide = {f"feature {j}": 1.0 for j in range(30)}
    batch = {name: column[:50] for name, column in columns.items()}
    yield grown, lambda m: learn_and_look(m, columns, y)
    yield grown, lambda m: m.learn_one(new, "maybe")
    yield grown, lambda m: m.learn_one(wide, "no")
    yield grown, lambda m: m.learn_one(new | wide, "one more")
    yield grown, lambda m: m.learn_many(batch, y[:50])
    yield grown, lambda m: m.predict_proba_many(batch)
    yield grown, lambda m: m.predict_one({"a": 1.0})
    yield grown, stored.to_bytes
    yield grown, lambda m: m.memory_usage()
    yield grown, lambda m: stored.from_bytes(grown)
    yield grown, lambda m: m.__setstate__(m.__getstate__())


def learn_and_look(model, columns, y):
    """Of rows that wait, some are still to be learnt when somebody looks."""
    for i in range(90):
        model.learn_one({name: column[i] for name, column in columns.items()}, y[i])
    model.memory_usage()


def fail_helpers(library, check_whole):
    """Let threads that help to sum candidates fail, until one of them had a part in it."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(1000, 40))
    y = (X[:, 0] > 0).astype(int)
    n_failures = 0
    for i in range(300):
        model = DynamicModelTreeClassifier.paper(n_jobs=3).partial_fit(X[:10], y[:10])
        library.fail_elsewhere_at(1 + i % 5)
        try:
            model.partial_fit(X, y)
        except MemoryError:
            n_failures += 1
            library.fail_elsewhere_at(0)
            check_whole(model, explains=False)
            model.partial_fit(X, y)
        if n_failures > 3:
            break
    print(n_failures)


def main(shim, which, *kinds):
    sys.path.insert(0, str(Path(__file__).parent))
    from test_interrupts import check_whole

    library = ctypes.CDLL(shim)
    for kind in kinds:
        if which == "helpers":
            fail_helpers(library, check_whole)
        else:
            fail_calls(library, check_whole, kind, which)


def fail_calls(library, check_whole, kind, which):
    """Let allocations of each call fail, and print how many did."""
    n_labels = 3 if kind == "three labels" else 2
    n_failures = 0
    if kind == "waiting":
        stored.let_wait(pytest.MonkeyPatch())
    for before, call in calls(kind if kind in stored.MAKERS else "measured", n_labels):
        n = 0
        while True:
            n += 1 if which == "all" else 1 + n // 2
            model = stored.from_bytes(before)
            library.fail_at(n)
            try:
                call(model)
            except MemoryError:
                n_failures += 1
            finally:
                left = library.failures_left()
                library.fail_at(0)
            check_whole(model, explains=False)
            if left > 0:
                break
    print(n_failures)


if __name__ == "__main__":
    np.seterr(all="ignore")
    main(*sys.argv[1:])
