"""Threads: some predict while another learns, or two learn; several models learn at a time."""

import pickle
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse

import stored
from driftree import (
    DynamicModelForestClassifier,
    DynamicModelTreeClassifier,
    FIMTDDClassifier,
    export_text,
)
from driftree.learn import constants
from driftree.learn.tree import Tree
from driftree.streams import agrawal
from quick import make_engine

WATCHING = Path(__file__).parents[1] / "support" / "watching.py"
KINDS = ["Prune", "Replace", "Split"]
BENT_KINDS = sorted(["Bend", "LinkChange", "MemoryChange", "Shift", "Unbend", *KINDS])
LINK_KINDS = ["LinkChange", *KINDS]

PREDICT_WHILE_LEARNING = """
import sys, threading
import numpy as np
import driftree

sys.setswitchinterval(1e-5)
X = np.random.default_rng(1).normal(size=(20_000, 5))
y = ((X[:, 0] > 0) ^ (X[:, 1] > 0)).astype(int)
columns = {f"x{j}": X[:500, j] for j in range(5)}
row = {name: column[0] for name, column in columns.items()}
model = getattr(driftree, sys.argv[1])().partial_fit(X[:1000], y[:1000])
done, errors = False, []

def predict():
    try:
        while not done:
            assert np.isfinite(model.predict_proba(X[:500])).all()
            proba = model.predict_proba_many(columns)
            assert all(np.isfinite(part).all() for part in proba.values())
            proba = model.predict_proba_one({"x0": 1.0, "never seen": "a"})
            assert abs(sum(proba.values()) - 1) < 1e-9
            model.predict_one(row)
    except BaseException as error:
        errors.append(error)
        raise

readers = [threading.Thread(target=predict) for _ in range(2)]
for reader in readers:
    reader.start()
for start in range(1000, 10_000, 200):
    rows = slice(start, start + 500)
    labels = y[rows] ^ (start // 5000 % 2)
    if start % 1000 == 0:
        labels[0] = len(model.classes_) + 1  # a new label: every model moves to other memory
        model.learn_one(row | {f"new {start}": 1.0}, int(labels[0]))  # and a new feature
    model.partial_fit(X[rows], labels)
done = True
for reader in readers:
    reader.join()
sys.exit(len(errors))
"""


@pytest.mark.parametrize("learner", ["DynamicModelTreeClassifier", "FIMTDDClassifier"])
def test_some_threads_may_predict_while_another_learns(learner):
    command = [sys.executable, "-c", PREDICT_WHILE_LEARNING, learner]
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert (run.returncode, run.stderr) == (0, "")


def test_the_text_of_a_tree_that_learns_is_that_of_a_whole_state():
    """The tree grows and is pruned, and numbers and levels come, while others write it down."""
    model, done = DynamicModelTreeClassifier(**stored.RASH), threading.Event()
    stored.learn_rows(model, *stored.draw(100))

    def write():
        while not done.is_set():
            export_text(model)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(2) as pool:
            writers = [pool.submit(write) for _ in range(2)]
            try:
                for i in range(1500):
                    stored.learn_rows(model, *stored.draw(1, start=100 + i, n_labels=3))
                    if i % 50 == 0:
                        model.learn_one({f"new {i}": float(i), ("colour", 1): f"{i}"}, "no")
            finally:
                done.set()
            for writer in writers:
                writer.result()
    finally:
        sys.setswitchinterval(before)


LOOK_WHILE_A_FOREST_LEARNS = """
import random, threading
from driftree import DynamicModelForestClassifier
draw = random.Random(1)
rows = [({name: draw.gauss(0, 1) for name in "abcd"}, draw.random() < 0.5) for _ in range(300)]
for _ in range(15):
    model, done = DynamicModelForestClassifier(n_trees=3), threading.Event()
    model.learn_one(*rows[0])
    def look():
        while not done.is_set():
            model.predict_one(rows[0][0]), model.events_, model.n_nodes_
    readers = [threading.Thread(target=look) for _ in range(2)]
    for reader in readers:
        reader.start()
    for row in rows:
        model.learn_one(*row)
    done.set()
    for reader in readers:
        reader.join()
"""


def test_who_looks_at_the_trees_of_a_forest_that_learns_rows_stops_nobody():
    """They hold the GIL and the locks of the trees in turn; if one waits for ever, all do."""
    command = [sys.executable, "-c", LOOK_WHILE_A_FOREST_LEARNS]
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)
    assert (run.returncode, run.stderr) == (0, "")


NEW_NAMES = {
    "row": lambda model: model.learn_one({"new": 1, "newer": 1}, "ham", w=0.5),
    "dicts": lambda model: model.learn_many([{"new": 1}, {"newer": 1}], ["ham", "spam"]),
    "levels": lambda model: model.learn_many([{"word": "new"}], ["ham"]),
    "evicting": lambda model: model.learn_many([{f"new {i}": 1 for i in range(9)}], ["ham"]),
    "matrix": lambda model: model.partial_fit(scipy.sparse.eye_array(3).tocsr(), ["ham"] * 3),
}


@pytest.mark.parametrize("learn", NEW_NAMES.values(), ids=NEW_NAMES)
def test_new_names_of_sparse_rows_wait_for_who_copies_the_trees_of_a_forest(learn):
    model = DynamicModelForestClassifier(n_trees=2, absent="zero", max_features=10)
    model.learn_many([{"free": 1, "call": 1}, {"ok": 1, "lar": 1}] * 20, ["spam", "ham"] * 20)
    learner = threading.Thread(target=learn, args=(model,))
    with model._tree.engine.reading():
        before = model._tree.encoder.row_face.sparse_names()
        learner.start()
        learner.join(0.1)
        assert model._tree.encoder.row_face.sparse_names() == before
        assert len(model.trees_) == 2
        assert learner.is_alive()
    learner.join()
    assert model._tree.encoder.row_face.sparse_names() != before


@pytest.mark.parametrize("n_watchers", [2, pytest.param(8, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("learner", "kinds"),
    [("measured", BENT_KINDS), ("straight", LINK_KINDS), ("paper", KINDS), ("fimtdd", [])],
)
def test_every_prediction_is_that_of_a_whole_state(learner, kinds, n_watchers):
    command = [sys.executable, str(WATCHING), learner, str(n_watchers)]
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)
    assert (run.stderr, run.returncode) == ("", 0)
    assert run.stdout.split() == kinds


LEARNERS = [DynamicModelTreeClassifier, DynamicModelTreeClassifier.paper, FIMTDDClassifier]


# ---------------------------------------------------------------------- turns
class Other:
    """Another thread, which has a turn at an engine from `begin` to `end`."""

    def __init__(self, turn):
        self.has_begun, self.may_end, self.turn = threading.Event(), threading.Event(), turn
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        with self.turn:
            self.has_begun.set()
            self.may_end.wait(60)

    def begins(self, seconds=60):
        return self.has_begun.wait(seconds)

    def waits(self):
        return not self.begins(0.05)

    def end(self):
        self.may_end.set()
        self.thread.join(60)
        return not self.thread.is_alive()


def test_many_read_or_one_writes_and_nobody_is_passed_over():
    engine = make_engine(1)
    first, second = Other(engine.reading()), Other(engine.reading())
    assert first.begins()
    assert second.begins()
    writer = Other(engine.writing())
    assert writer.waits()
    late = Other(engine.reading())
    assert late.waits()  # or writers might wait for ever
    assert first.end()
    assert writer.waits()
    assert second.end()
    assert writer.begins()
    later = Other(engine.writing())
    assert late.waits()
    assert later.waits()
    assert writer.end()
    assert late.begins()  # before the second writer, though that is awake
    assert later.waits()
    assert late.end()
    assert later.begins()
    assert later.end()
    with engine.writing():
        assert engine.n_rows == 0


def test_a_turn_inside_a_turn_waits_for_nobody():
    engine, other_engine = make_engine(1), make_engine(1)
    with engine.writing(), engine.reading(), engine.writing():
        engine.add_feature(False, True)
    with engine.reading():
        writer = Other(engine.writing())
        assert writer.waits()
        with engine.reading(), other_engine.writing():
            assert engine.n_features == 2
        assert writer.waits()
        with pytest.raises(RuntimeError, match="cannot learn while the same thread looks"):
            engine.add_feature(False, True)
    assert writer.begins()
    assert writer.end()


@pytest.mark.parametrize("by_rows", [True, False])
def test_whatever_happens_in_a_decision_the_turn_ends(monkeypatch, by_rows):
    X, y = next(agrawal(2000, seed=1, function=1, batch_rows=2000))
    model = DynamicModelTreeClassifier().fit(X[:100], y[:100])
    row = dict(zip(model._tree.encoder.names, X[0].tolist(), strict=True))
    monkeypatch.setattr(Tree, "decide", lambda _: 1 / 0)

    def learn():
        for _ in range(1000):
            model.learn_one(row, int(y[0])) if by_rows else model.partial_fit(X, y)

    with pytest.raises(ZeroDivisionError):
        learn()
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(model.predict, X[:5]).result(60).shape == (5,)


# ---------------------------------------------------------------------- two learn
def teach(model, part):
    """Teach one of two lessons, each of which has a feature, a level and a label of its own."""
    rng = np.random.default_rng(part)
    a, b = rng.normal(size=(2, 30))
    level = np.array([f"level {part}", "common"], dtype=object)[(b > 0).astype(int)]
    y = np.where(a > 1, 5 + part, a > 0)
    model.learn_many({"a": a, f"own {part}": b, "c": level}, y)
    for i in range(5):
        model.learn_one({"a": a[i], f"another {part}": b[i]}, int(y[i]))


@pytest.mark.parametrize("build", LEARNERS)
def test_calls_of_two_threads_that_learn_come_one_after_the_other(build):
    X = {"a": np.linspace(-1, 1, 6), "own 0": np.linspace(1, -1, 6)}
    switch_interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(20):
            model = build()
            with ThreadPoolExecutor(2) as pool:
                list(pool.map(partial(teach, model), range(2)))
            assert model.n_rows_seen_ == 70
            assert set(model.classes_.tolist()) == {0, 1, 5, 6}
            assert list(model._tree.encoder.names.values()) == list(range(6))
            assert set(model._tree.encoder.levels[model._tree.encoder.names["c"]]) == {
                "level 0",
                "level 1",
                "common",
            }
            twin = pickle.loads(pickle.dumps(model))
            answers = [one.predict_proba_many(X) for one in (model, twin)]
            assert np.isfinite(np.stack(list(answers[0].values()))).all()
            np.testing.assert_equal(*answers)
    finally:
        sys.setswitchinterval(switch_interval)


@pytest.mark.parametrize("build", LEARNERS)
def test_two_threads_that_learn_a_batch_each_learn_them_in_one_of_two_orders(build):
    def lesson(part):
        rng = np.random.default_rng(part)
        a, b = rng.normal(size=(2, 50))
        return {"a": a, f"own {part}": b}, rng.integers(0, 3 + part, 50)

    def state(model):
        return {name: array.tobytes() for name, array in model._tree.engine.arrays().items()}

    orders = []
    for order in ((0, 1), (1, 0)):
        orders.append(build())
        for part in order:
            orders[-1].learn_many(*lesson(part))
    for _ in range(20):
        model = build()
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(model.learn_many, *zip(*map(lesson, range(2)), strict=True)))
        assert state(model) in list(map(state, orders))


# ---------------------------------------------------------------------- without the GIL
@pytest.mark.parametrize("call", ["partial_fit", "predict_proba"])
def test_other_threads_go_on_during_a_batch(call):
    X, y = next(agrawal(300_000, seed=1, function=1, batch_rows=300_000))
    model = DynamicModelTreeClassifier.paper().partial_fit(X[:1000], y[:1000])
    counts, is_over, during = [0], threading.Event(), []

    def count():
        while not is_over.is_set():
            counts[0] += 1
            time.sleep(0)  # lets go of the GIL

    counter = threading.Thread(target=count)
    switch_interval = sys.getswitchinterval()
    sys.setswitchinterval(60)  # nobody is made to let go of the GIL
    counter.start()
    try:
        while len(during) < 5 and max(during, default=0) <= 10:  # other processes may be busy
            before = counts[0]
            model.partial_fit(X, y) if call == "partial_fit" else model.predict_proba(X)
            during.append(counts[0] - before)
    finally:
        is_over.set()
        sys.setswitchinterval(switch_interval)
        counter.join()
    assert max(during) > 10  # with the GIL held it would be one or two


@pytest.mark.parametrize("build", LEARNERS)
def test_models_in_threads_learn_the_same_bits_as_one_after_the_other(build):
    def learn(seed):
        model = build()
        for X, y in agrawal(6000, seed=seed, function=1, batch_rows=500):
            model.partial_fit(X, y)
        return model

    with ThreadPoolExecutor(2) as pool:
        together = list(pool.map(learn, range(4)))
    for seed, model in enumerate(together):
        alone = learn(seed)
        arrays = alone._tree.engine.arrays()
        assert arrays.keys() == model._tree.engine.arrays().keys()
        for name, array in model._tree.engine.arrays().items():
            assert np.asarray(array).tobytes() == np.asarray(arrays[name]).tobytes()


@pytest.mark.parametrize("build", LEARNERS)
def test_parts_of_a_batch_in_threads_are_predicted_as_the_whole(build):
    X, y = next(agrawal(8000, seed=1, function=1, batch_rows=8000))
    model = build().fit(X, y)
    with ThreadPoolExecutor(2) as pool:
        parts = list(pool.map(model.predict_proba, np.array_split(X, 5)))
    assert np.concatenate(parts).tobytes() == model.predict_proba(X).tobytes()


def cores_in_use(call):
    """How many cores two threads keep busy that both do the same."""
    wall, processor = time.perf_counter(), time.process_time()
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: call(), range(2)))
    return (time.process_time() - processor) / (time.perf_counter() - wall)


@pytest.mark.slow
def test_two_learners_in_two_threads_use_two_cores():
    X, y = next(agrawal(400_000, seed=1, function=1, batch_rows=400_000))
    calls = {
        "learn": lambda: DynamicModelTreeClassifier.paper().partial_fit(X, y),
        "sort": lambda: np.sort(X, axis=0),  # which NumPy does without the GIL, too
    }
    cores = {name: [] for name in calls}
    for _ in range(9):  # in turn: others may use the machine meanwhile
        for name, call in calls.items():
            cores[name].append(cores_in_use(call))
    assert np.median(cores["learn"]) > 0.75 * np.median(cores["sort"])


def test_a_step_of_many_inputs_has_few_rows():
    """Nobody predicts during a step, so its work is bounded: rows by inputs by inputs."""
    rng = np.random.default_rng(1)
    for m, most in ((10, 200), (100, 200), (400, 80), (1000, 16)):
        row = {f"x{j}": 1.0 for j in range(m)}
        model = DynamicModelTreeClassifier()
        model.learn_one(row, 2)
        model.learn_many({name: rng.normal(size=30) for name in row}, [0, 1, 2] * 10)
        assert model._tree.step_rows <= most
        cells = m * m if m <= constants.MEASURED.costly_columns else m * m // 2
        assert model._tree.step_rows * cells <= constants.MEASURED.step_cells
    assert model._tree.engine.n_steps > 2  # the rows that bring them, too


def test_a_step_of_a_wide_table_has_few_values():
    """Its inputs are not learnt together: rows by inputs."""
    rng = np.random.default_rng(1)
    for n, m, n_steps in ((300, 1000, 2), (300, 2500, 3), (30, 20_000, 3)):
        y = np.arange(n) % 3
        model = DynamicModelTreeClassifier().partial_fit(rng.normal(size=(n, m)), y)
        assert model._tree.engine.n_steps == n_steps
        assert model._tree.engine.n_columns <= constants.MEASURED.most_wide_columns + 1
