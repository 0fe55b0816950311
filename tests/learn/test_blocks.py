"""Rows that come one at a time: their leaf learns them at once, all else in blocks.

When a block is cut short by somebody who looks, nothing of what is learnt may change.
"""

import itertools
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import stored
from driftree import (
    DynamicModelForestClassifier,
    DynamicModelTreeClassifier,
    DynamicModelTreeRegressor,
    load,
)
from driftree.learn import constants
from driftree.learn.storage import models

N = 2600
RASH = {"epsilon": 0.1, "evidence_window": 1000}


@pytest.fixture(autouse=True)
def _waiting(monkeypatch):
    stored.let_wait(monkeypatch)


def make_rows(n=N, seed=1):
    """Dicts of what there is: numbers, gaps, a category, a flag that turns out to be a number.

    Features and levels are new in mid-stream, and the rule changes.
    """
    rng = np.random.default_rng(seed)
    a, b, c = rng.normal(size=(3, n))
    rows = []
    for i in range(n):
        row = {"a": a[i], "b": None if i > 300 and rng.random() < 0.1 else b[i]}
        row["flag"] = float(rng.random() < 0.4) if i < 1500 else 2 * c[i]
        row["colour"] = ["red", "green", "blue"][int(rng.integers(2 + (i > 900)))]
        if i > 1100:
            row["late"] = c[i]
        rows.append(row)
    sign = np.where(np.arange(n) < n // 2, 1, -1)
    score = sign * np.where(a > 0.3, b, -b) + np.abs(c)
    return rows, score


def labels(score, n_labels):
    return np.digitize(score, [0.3, 1.5][: n_labels - 1]).tolist()


def numbers(score):
    y = score + 0.1
    y[1700:] *= 300.0  # another scale
    return y.tolist()


def check_looks(make, rows, y, looks=(1, 13)):
    """Whoever looks, and how often: the same answers, the same bytes. Returns a model."""
    answers, found = [], []
    for every in (None, *looks):
        model, said = make(), []
        for i, (x, label) in enumerate(zip(rows, y, strict=True)):
            if i:
                said.append(model.predict_one(x))
            model.learn_one(x, label)
            if every and i % every == 0:
                model.memory_usage()
        answers.append(said)
        found.append(models.to_bytes(model))
    assert all(one == answers[0] for one in answers)
    assert all(one == found[0] for one in found)
    return model


@pytest.mark.parametrize("n_labels", [2, 3])
def test_a_look_changes_nothing_of_labels(n_labels):
    rows, score = make_rows()
    model = check_looks(lambda: DynamicModelTreeClassifier(**RASH), rows, labels(score, n_labels))
    assert {"split", "bend"} <= {event.kind for event in model.events_}


def test_a_look_changes_nothing_of_numbers():
    rows, score = make_rows(seed=3)
    model = check_looks(lambda: DynamicModelTreeRegressor(**RASH), rows, numbers(score))
    assert {"split", "bend", "shift"} <= {event.kind for event in model.events_}


def test_a_look_changes_nothing_of_a_forest():
    rows, score = make_rows(700)
    check_looks(lambda: DynamicModelForestClassifier(n_trees=3), rows, labels(score, 2), (9,))


def test_rows_wait_until_somebody_looks_or_the_block_is_full():
    rows, score = make_rows(200)
    model, waiting = DynamicModelTreeClassifier(), []
    for x, label in zip(rows, labels(score, 2), strict=True):
        model.learn_one(x, label)
        waiting.append(model._tree.engine.n_waiting)
        model.predict_one(x)
        model.predict_proba_one(x)
        assert model._tree.engine.n_waiting == waiting[-1]
    growing = 3  # the first rows bring features, labels and levels
    assert waiting[growing:63] == list(range(waiting[growing], waiting[growing] + 60))
    assert waiting[63] == waiting[127] == 0
    assert waiting[126] > 20  # Python looks now and then, for the history
    assert waiting[198] == 7
    assert model.n_leaves_ == 1
    assert model._tree.engine.n_waiting == 0


def test_decisions_are_made_between_blocks():
    rows, score = make_rows()
    model = DynamicModelTreeClassifier(**RASH)
    for x, label in zip(rows, labels(score, 2), strict=True):
        model.learn_one(x, label)
    assert len(model.events_) > 3
    assert {event.step % constants.MEASURED.block_rows for event in model.events_} == {0}


def test_small_trees_do_not_wait(monkeypatch):
    monkeypatch.undo()
    rows, score = make_rows(300)
    model = DynamicModelTreeClassifier()
    for x, label in zip(rows, labels(score, 2), strict=True):
        model.learn_one(x, label)
        assert model._tree.engine.n_waiting == 0


def test_rows_that_come_together_end_the_block():
    rows, score = make_rows(1000)
    y = labels(score, 2)

    def learn(*, looks):
        model = DynamicModelTreeClassifier(**RASH)
        start, sizes = 0, itertools.cycle([1] * 30 + [5] + [1] * 100 + [70])
        while start < len(rows):
            part = slice(start, start + next(sizes))
            if part.stop - part.start == 1:
                model.learn_one(rows[start], y[start])
            else:
                names = rows[part][0].keys()
                columns = {name: [row.get(name) for row in rows[part]] for name in names}
                model.learn_many(columns, y[part])
                assert model._tree.engine.n_waiting == 0
            start = part.stop
            if looks:
                model.memory_usage()
        return models.to_bytes(model)

    assert learn(looks=True) == learn(looks=False)


def test_a_model_in_a_block_goes_on_from_its_file(tmp_path):
    rows, score = make_rows()
    y = labels(score, 2)
    model = DynamicModelTreeClassifier(**RASH)
    for i, (x, label) in enumerate(zip(rows, y, strict=True)):
        model.learn_one(x, label)
        if i in (700, 1203, 2100):
            assert i % 64 < 63
            model.save(tmp_path / "model.dmt")
            model = load(tmp_path / "model.dmt")
    alone = DynamicModelTreeClassifier(**RASH)
    for x, label in zip(rows, y, strict=True):
        alone.learn_one(x, label)
    assert models.to_bytes(alone) == models.to_bytes(model)


def test_threads_learn_a_block_to_the_same_bits():
    rows, score = make_rows(1500)
    found = []
    for n_jobs in (1, 3):
        model = DynamicModelTreeClassifier(**RASH)
        for x, label in zip(rows, labels(score, 3), strict=True):
            model.learn_one(x, label)
            model._tree.engine.n_threads = n_jobs
        model._tree.engine.n_threads = 1
        found.append(models.to_bytes(model))
    assert found[0] == found[1]


def test_others_look_while_one_learns():
    rows, score = make_rows(1500)
    y = labels(score, 2)
    model, alone = DynamicModelTreeClassifier(**RASH), DynamicModelTreeClassifier(**RASH)
    for x, label in zip(rows, y, strict=True):
        alone.learn_one(x, label)
    model.learn_one(rows[0], y[0])
    is_over = threading.Event()

    def look():
        while not is_over.is_set():
            model.memory_usage()
            model.predict_one(rows[5])
            assert model.n_leaves_ >= 1

    with ThreadPoolExecutor(2) as pool:
        looks = [pool.submit(look) for _ in range(2)]
        for x, label in zip(rows[1:], y[1:], strict=True):
            model.learn_one(x, label)
        is_over.set()
        for one in looks:
            one.result()
    assert models.to_bytes(model) == models.to_bytes(alone)


class Curious:
    """A number that looks at a model when it is read."""

    def __init__(self, value, model):
        self.value, self.model, self.n_looks = value, model, 0

    def __float__(self):
        self.n_looks += self.model.memory_usage() > 0
        return float(self.value)


def test_a_row_that_looks_at_the_model_while_it_is_read():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(300, 2)).tolist()
    plain, curious = DynamicModelTreeClassifier(), DynamicModelTreeClassifier()
    for i, (a, b) in enumerate(X):
        label = int(a > b)
        plain.learn_one({"a": a, "b": b}, label)
        looker = Curious(a, curious) if i > 100 and i % 7 == 0 else a
        if i > 100:
            assert curious.predict_one({"a": looker, "b": b}) in (0, 1)
        curious.learn_one({"a": looker, "b": b}, label)
        assert looker is a or looker.n_looks > 0
    assert models.to_bytes(plain) == models.to_bytes(curious)
