"""Exceptions from outside, at any line and at any time: the model is whole, and goes on.

Ctrl-C, a time-out or a lack of memory may raise between any two lines of Python. Names and labels
that are registered, and changes of the tree, have a part in the kernels and a part in Python: they
come together or not at all, or are finished before the model is next looked at.
"""

import functools
import itertools
import os
import signal
import threading
from pathlib import Path

import numpy as np
import pytest

import driftree
import stored
from driftree import (
    DynamicModelForestClassifier,
    DynamicModelTreeClassifier,
    DynamicModelTreeRegressor,
    FIMTDDClassifier,
)
from driftree.learn.constants import FOREST, MEASURED
from interrupting import AtLine, Interrupt

LEARN = str(Path(driftree.__file__).parent)


def check_whole(model, *, explains=True):
    """The model looks sound, saves and loads, and its twin goes on as it does."""
    if model._tree is not None:
        engine, encoder = model._tree.engine, model._tree.encoder
        target = model._tree.target
        assert engine.n_classes == max(1, len(target.labels)) == max(1, len(target.label_list))
        assert engine.n_features == len(encoder.names) == len(encoder.levels)
    if explains:
        stored.explain(model)
    twin = stored.from_bytes(stored.to_bytes(model))
    for one in (model, twin):
        stored.learn_rows(one, *stored.draw(6, start=40, n_labels=3))
        one.learn_one({"a": 0.5, "brand new": "level", "another": 1.0}, "a new label")
        one.learn_one({"a": None, "brand new": "other"}, "yes")
    assert stored.to_bytes(model) == stored.to_bytes(twin)
    assert model.predict_proba_one({"a": 1.0}).keys() == {*model.classes_}


def young(kind):
    model = stored.MAKERS[kind]()
    stored.learn_rows(model, *stored.draw(30))
    return model


def bring_names(model):
    """A row with a new feature, a new level, a new gap and a third label."""
    model.learn_one({"a": None, "b": 1.0, ("colour", 1): "mauve", "new": 3, "text": "x"}, "maybe")


def bring_frame(model):
    columns, _ = stored.draw(5, start=30, n_labels=3)
    columns |= {"more": np.array(["p", "q", None, "p", "r"], dtype=object)}
    model.learn_many(columns, np.array(["no", "maybe", "yes", "fourth", "no"], dtype=object))


def bring_first(model):
    model.partial_fit(np.arange(6.0).reshape(3, 2), ["x", "y", "z"])


@pytest.mark.parametrize("kind", stored.MAKERS)
@pytest.mark.parametrize("bring", [bring_names, bring_frame, bring_first])
def test_registering_may_be_interrupted(kind, bring):
    interrupt_registering(kind, bring, step=13)


@pytest.mark.slow
@pytest.mark.parametrize("kind", stored.MAKERS)
@pytest.mark.parametrize("bring", [bring_names, bring_frame, bring_first])
def test_registering_may_be_interrupted_at_any_line(kind, bring):
    interrupt_registering(kind, bring, step=1)


def interrupt_registering(kind, bring, step):
    make = stored.MAKERS[kind] if bring is bring_first else lambda: young(kind)
    first, n_interrupted = stored.to_bytes(make()), 0
    for n in itertools.count(1, step):
        model = stored.from_bytes(first)
        with AtLine(n, LEARN) as lines:
            bring(model)
        if lines.count < n:
            break
        n_interrupted += 1
        check_whole(model, explains=n % 20 == 0)
    assert step * n_interrupted > 400


@functools.cache
def deciding(kind):
    """Models just before a row after which their trees change, by the kind of change; that row."""
    parameters = {"epsilon": 1.0} if kind != "FIMT-DD" else {}
    columns, y = stored.draw(4000)
    rows = [{name: column[i] for name, column in columns.items()} for i in range(len(y))]
    first = {}
    model = stored.MAKERS[kind](**parameters)
    for i, row in enumerate(rows):
        n_nodes = getattr(model, "n_nodes_", 1)
        model.learn_one(row, y[i])
        change = np.sign(model.n_nodes_ - n_nodes)
        if kind != "FIMT-DD" and (log := model._tree.history.events) and log[-1].n_rows == i + 1:
            change = log[-1].kind
        if change:
            first.setdefault(change, i)
    found = []
    model = stored.MAKERS[kind](**parameters)
    for i, row in enumerate(rows):
        if i in first.values():
            found.append((stored.to_bytes(model), row, y[i]))
        model.learn_one(row, y[i])
    return found


@pytest.mark.parametrize("kind", stored.MAKERS)
def test_deciding_may_be_interrupted(kind):
    interrupt_deciding(kind, step=11)


@pytest.mark.slow
@pytest.mark.parametrize("kind", stored.MAKERS)
def test_deciding_may_be_interrupted_at_any_line(kind):
    interrupt_deciding(kind, step=1)


def interrupt_deciding(kind, step):
    """Splits, replacements, prunings, bends, links: each change is made and told, or neither."""
    n_interrupted = 0
    for before, row, label in deciding(kind):
        for n in itertools.count(1, step):
            model = stored.from_bytes(before)
            with AtLine(n, LEARN) as lines:
                model.learn_one(row, label)
            if lines.count < n:
                break
            n_interrupted += 1
            check_whole(model, explains=n_interrupted % 10 == 0)
    assert step * n_interrupted > (20 if kind == "FIMT-DD" else 200)


def test_an_interrupted_change_is_told_once():
    before, row, label = deciding("measured")[-1]
    for n in itertools.count(1, 3):
        model = stored.from_bytes(before)
        with AtLine(n, LEARN) as lines:
            model.learn_one(row, label)
        if lines.count < n:
            break
        assert len(model.events_) == len({(e.step, e.node) for e in model.events_})
        assert len(model._tree.history.now.nodes) == model.n_nodes_


def check_loaded(learn, *, make, rows, files, least):
    """At whatever line `learn` is interrupted, the file of the model learns `rows` as it does."""
    for n in itertools.count(1):
        model = make()
        with AtLine(n, LEARN, files) as lines:
            learn(model)
        if lines.count < n:
            break
        twin = stored.from_bytes(stored.to_bytes(model))
        for one in (model, twin):
            for row, y in rows:
                one.learn_one(row, y)
        assert stored.to_bytes(model) == stored.to_bytes(twin)
    assert n > least


def test_an_interrupted_look_at_sparse_features_is_not_lost():
    rng = np.random.default_rng(1)
    rows = [
        ({f"w{j}": 1.0 for j in rng.choice(20, 5, replace=False)}, int(rng.integers(2)))
        for _ in range(MEASURED.first_look_rows + 5)
    ]
    rows = [({**row, "w0": float(y + 1)}, y) for row, y in rows]
    before = DynamicModelTreeClassifier(absent="zero")
    for row, y in rows[: MEASURED.first_look_rows - 1]:
        before.learn_one(row, y)
    first = stored.to_bytes(before)
    check_loaded(
        lambda model: model.learn_one(*rows[MEASURED.first_look_rows - 1]),
        make=lambda: stored.from_bytes(first),
        rows=rows[MEASURED.first_look_rows :],
        files=("/sparse.py", "/tree.py"),
        least=30,
    )


def test_a_sample_that_is_interrupted_is_not_taken_twice():
    model = young("measured")
    columns, y = stored.draw(500)
    rows = [({name: column[i] for name, column in columns.items()}, y[i]) for i in range(len(y))]
    while model._tree.engine.n_rows < model._tree.history.next_row - 1:
        model.learn_one(*rows[model._tree.engine.n_rows])
    first, i = stored.to_bytes(model), model._tree.engine.n_rows
    check_loaded(
        lambda model: model.learn_one(*rows[i]),
        make=lambda: stored.from_bytes(first),
        rows=rows[i + 1 : i + 3],
        files=("/tree.py", "/history.py"),
        least=20,
    )


def test_an_interrupted_batch_shows_the_level_of_its_targets():
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(300, 2)), np.arange(300.0)
    rows = [({"x0": 0.5, "x1": 1.0}, 1e3)] * 3
    check_loaded(
        lambda model: model.partial_fit(X, y),
        make=lambda: DynamicModelTreeRegressor().partial_fit(X[:20], y[:20]),
        rows=rows,
        files=("/estimator.py",),
        least=20,
    )


# ---------------------------------------------------------------------- forests
FOREST_FILES = ("/forest.py", "/forest_engine.py", "/members.py")
PAIRED = {"a": 0.5, "b": 2.0, ("colour", 1): "red"}


def learn_plain(model):
    model.learn_one(PAIRED, "yes")


LOOKS = [
    lambda model: model.predict_one(PAIRED),
    lambda model: model.predict_many([PAIRED]),
    learn_plain,
    lambda model: model.learn_many([PAIRED] * 3, ["yes"] * 3),
    stored.to_bytes,
]


@pytest.mark.parametrize(
    ("n_rows", "bring"),
    [(30, bring_names), (260, bring_names), (FOREST.scale_rows - 1, learn_plain)],
    ids=["young", "old", "rescaled"],
)
def test_members_of_an_interrupted_forest_know_the_same(n_rows, bring):
    """The trees follow the first one together: no row reaches a tree that lacks its features."""
    model = DynamicModelForestClassifier(n_trees=2, **stored.RASH)
    stored.learn_rows(model, *stored.draw(n_rows))
    first = stored.to_bytes(model)
    for n in itertools.count(1):
        model = stored.from_bytes(first)
        with AtLine(n, LEARN, FOREST_FILES) as lines:
            bring(model)
        if lines.count < n:
            break
        assert len({tree.engine.n_rows for tree in model._tree.trees}) == 1
        LOOKS[n % len(LOOKS)](model)
        check_whole(model, explains=False)
    assert n > 50


# ---------------------------------------------------------------------- real signals
def storm(model, n_signals, seed):
    """Learn rows that bring names and labels while a thread sends signals; return how many came."""
    rng, came, stop = np.random.default_rng(seed), 0, threading.Event()
    is_learning = False

    def send():
        while not stop.wait(float(rng.uniform(0, 2e-3))):
            os.kill(os.getpid(), signal.SIGUSR1)

    def interrupt(*_):
        nonlocal is_learning
        if is_learning:  # once, and only in the library
            is_learning = False
            raise Interrupt

    columns, y = stored.draw(4000, n_labels=3)
    before = signal.signal(signal.SIGUSR1, interrupt)
    thread = threading.Thread(target=send)
    thread.start()
    for i, label in enumerate(y):
        row = {name: column[i] for name, column in columns.items()}
        row |= {f"name {i // 20}": float(i), "level": f"{i // 50}"}
        try:
            is_learning = True
            model.learn_one(row, label if i % 50 else f"label {i // 500}")
            is_learning = False
        except Interrupt:
            came += 1
        if came == n_signals:
            break
    stop.set()
    thread.join()
    signal.signal(signal.SIGUSR1, before)
    return came


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("kind", stored.MAKERS)
def test_signals_leave_a_whole_model(kind, seed):
    model = stored.MAKERS[kind]()
    assert storm(model, 40, seed) > 0
    check_whole(model)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100))
@pytest.mark.parametrize("kind", stored.MAKERS)
def test_many_signals_leave_a_whole_model(kind, seed):
    model = stored.MAKERS[kind]()
    storm(model, 20, 100 + seed)
    check_whole(model)


# ---------------------------------------------------------------------- fork
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("make", [DynamicModelTreeClassifier, FIMTDDClassifier])
def test_a_child_of_a_process_whose_threads_predict_learns(make):
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(20_000, 5)), rng.integers(0, 2, 20_000)
    model, stop = make().partial_fit(X[:500], y[:500]), threading.Event()

    def predict():
        while not stop.is_set():
            model.predict_proba(X)

    threads = [threading.Thread(target=predict) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(20):
            child = os.fork()
            if child == 0:
                signal.alarm(30)  # a child that hangs is killed
                model.partial_fit(X[:100], y[:100])
                model.learn_one({f"x{j}": 0.5 for j in range(5)}, 1)
                os._exit(0 if model.predict(X[:10]).shape == (10,) else 1)
            assert os.waitpid(child, 0)[1] == 0
    finally:
        stop.set()
        for thread in threads:
            thread.join()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_has_a_whole_model_or_an_error_when_a_thread_learns():
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(4000, 5)), rng.integers(0, 2, 4000)
    model, stop = DynamicModelTreeClassifier().partial_fit(X[:500], y[:500]), threading.Event()

    def learn():
        while not stop.is_set():
            model.partial_fit(X, y)

    thread = threading.Thread(target=learn)
    thread.start()
    outcomes = set()
    try:
        for _ in range(30):
            child = os.fork()
            if child == 0:
                signal.alarm(30)
                try:
                    model.partial_fit(X[:100], y[:100])
                    stored.from_bytes(stored.to_bytes(model))
                    os._exit(0)
                except RuntimeError as error:
                    os._exit(3 if "forked" in str(error) else 1)
                finally:
                    os._exit(2)
            status = os.waitpid(child, 0)[1]
            outcomes.add(os.waitstatus_to_exitcode(status))
    finally:
        stop.set()
        thread.join()
    assert outcomes <= {0, 3}
