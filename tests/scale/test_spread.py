"""The trees of a forest on many workers: the same bits as in one process."""

import os
import signal
import threading
from functools import partial

import numpy as np
import pytest

from driftree import DynamicModelForestClassifier, DynamicModelForestRegressor
from driftree.learn.events import MemberReplaced
from driftree.learn.evidence import MeasuredTrials
from driftree.learn.forest_engine import ForestEngine
from driftree.learn.storage import models
from driftree.scale import fit, spread
from driftree.scale.spread import Actors, Here, Part, fit_forest
from driftree.streams import open_stream

MAKE = {
    "labels": partial(DynamicModelForestClassifier, n_trees=4),
    "numbers": partial(DynamicModelForestRegressor, n_trees=4),
}
every_kind = pytest.mark.parametrize("kind", MAKE)


def draw(n_rows, kind, seed=1):
    """Columns of all sorts, whose product matters; a third label and a level come late."""
    rng = np.random.default_rng(seed)
    columns = {name: rng.normal(size=n_rows) for name in "abc"}
    columns["c"][rng.random(n_rows) < 0.1] = np.nan
    columns["kind"] = rng.choice(["u", "v"], n_rows).astype(object)
    columns["kind"][n_rows // 2 :: 7] = "w"
    product = columns["a"] * columns["b"] + 0.1 * rng.normal(size=n_rows)
    if kind == "numbers":
        return columns, 10.0 * product
    labels = np.where(product > 0, "yes", "no").astype(object)
    labels[2 * n_rows // 3 :: 5] = "maybe"
    return columns, labels


def spread_here(model, rows, workers):
    task = "regression" if rows[1].dtype == np.float64 else None
    fit_forest(model, open_stream(rows, task=task).batches(), workers, Here)
    return models.to_bytes(model)


@every_kind
@pytest.mark.parametrize("workers", [1, 2, 3, 8])
def test_any_number_of_workers_gives_the_bits_of_one_process(kind, workers):
    rows = draw(4000, kind)
    expected = models.to_bytes(fit(MAKE[kind](), rows))
    assert spread_here(MAKE[kind](), rows, workers) == expected


@every_kind
def test_one_process_learns_batches_of_1000_rows(kind):
    X, y = draw(2500, kind)
    usual = MAKE[kind]()
    for start in range(0, 2500, 1000):
        part = slice(start, start + 1000)
        usual.partial_fit({name: column[part] for name, column in X.items()}, y[part])
    assert models.to_bytes(fit(MAKE[kind](), (X, y))) == models.to_bytes(usual)


def test_a_forest_that_knows_something_goes_on():
    first, rows = draw(1234, "labels", seed=2), draw(3000, "labels")
    alone, apart = (MAKE["labels"]().partial_fit(*first) for _ in range(2))
    expected = models.to_bytes(fit(alone, rows))
    assert spread_here(apart, rows, 2) == expected
    rest = draw(500, "labels", seed=3)
    assert models.to_bytes(apart.partial_fit(*rest)) == models.to_bytes(alone.partial_fit(*rest))


def test_features_are_those_of_the_first_table_wherever_it_is_learnt():
    X, y = draw(1200, "labels")
    forest = MAKE["labels"]()
    for x in ({name: column[i] for name, column in X.items()} for i in range(5)):
        forest.learn_one(x, "yes")
    spread_here(forest, (X, y), 2)
    assert forest.n_features_in_ == 4
    assert forest.feature_names_in_.tolist() == [*X]


@pytest.fixture
def useless(monkeypatch):
    """Let some trees be useless at some looks."""
    found = ForestEngine.find_useless

    def find_useless(core, look):
        found(core, look)
        return {2000: 2, 4000: 1, 5000: 2}.get(look.n_rows)

    monkeypatch.setattr(ForestEngine, "find_useless", find_useless)


@every_kind
def test_trees_are_replaced_as_in_one_process(kind, useless):
    rows = draw(6000, kind)
    alone, apart = fit(MAKE[kind](), rows), MAKE[kind]()
    assert spread_here(apart, rows, 2) == models.to_bytes(alone)
    replaced = [event.member for event in apart.events_ if isinstance(event, MemberReplaced)]
    assert replaced == [2, 1, 2]


def test_steps_have_as_many_rows_as_the_widest_tree_of_all_parts_takes(useless, monkeypatch):
    """Where trees grow wider within a batch, one process learns that batch."""
    monkeypatch.setattr(MeasuredTrials, "step_rows", lambda self: 4000 // self.engine.n_columns)
    rows, n_started = draw(6000, "labels"), []

    def start(parts):
        n_started.append(len(parts))
        return Here(parts)

    alone, apart = fit(MAKE["labels"](), rows), MAKE["labels"]()
    fit_forest(apart, open_stream(rows).batches(), 3, start)
    assert models.to_bytes(apart) == models.to_bytes(alone)
    assert 1 < len(n_started) < 5
    n_columns = [tree.engine.n_columns for tree in alone._tree.trees]
    assert len(set(n_columns)) > 2  # so the parts by themselves would take different steps


def test_the_model_is_whole_after_some_rows(monkeypatch):
    monkeypatch.setattr(spread, "EVERY", 2000)
    rows, seen = draw(5000, "labels"), []
    model = MAKE["labels"]()
    gather = spread.Spread.gather

    def note(self):
        gather(self)
        seen.append(model.n_rows_seen_)

    monkeypatch.setattr(spread.Spread, "gather", note)
    assert spread_here(model, rows, 2) == models.to_bytes(fit(MAKE["labels"](), rows))
    assert seen == [3000, 5000, 5000]


def test_what_cannot_be_spread_is_refused():
    rows = draw(3000, "labels")
    forest = DynamicModelForestClassifier(class_weight="balanced")
    with pytest.raises(ValueError, match="class_weight and threshold depend"):
        fit(forest, rows, workers=2)
    assert forest._tree is None  # nothing is learnt
    with pytest.raises(ValueError, match="workers must be"):
        fit(DynamicModelForestClassifier(), rows, workers=0)
    X, y = np.eye(3)[np.arange(3000) % 3], np.arange(3000) % 2
    with pytest.raises(ValueError, match="their own names"):
        fit(DynamicModelForestClassifier(absent="zero"), (X, y), workers=2)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Ray's own
@pytest.mark.parametrize(("kind", "many"), [("labels", (1, 2, 4, 8)), ("numbers", (2,))])
def test_workers_on_ray_may_die(kind, many, useless, monkeypatch):
    ray = pytest.importorskip("ray", reason="Ray is not installed: pip install ray")
    monkeypatch.setenv("RAY_worker_niceness", "0")
    monkeypatch.setattr(spread, "EVERY", 2500)
    rows = draw(6000, kind)
    expected = models.to_bytes(fit(MAKE[kind](), rows))
    killed = []
    call = Actors.call

    def kill_some(self, method, arguments):
        is_midway = len(self._told[-1]) == 2  # between two beginnings
        if is_midway:
            killed.append(ray.get(self.actors[-1].pid.remote()))
            timer = threading.Timer(0.005, os.kill, (killed[-1], signal.SIGKILL))
            timer.start()  # while it learns
        answers = call(self, method, arguments)
        if is_midway:
            timer.join()
        return answers

    monkeypatch.setattr(Actors, "call", kill_some)
    ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    try:
        for workers in many:
            model = fit(MAKE[kind](), rows, workers=workers)
            assert models.to_bytes(model) == expected
    finally:
        ray.shutdown()
    assert len(set(killed)) == 2 * len(many)


def test_a_part_is_what_it_gives():
    """A worker that begins anew goes on as the one that died."""
    X, y = draw(3000, "labels")
    model = MAKE["labels"]().partial_fit(
        {name: column[:1000] for name, column in X.items()}, y[:1000]
    )
    one = Part(spread.part_of(model, [2, 3], is_first=False))
    rest = {name: column[1000:2000] for name, column in X.items()}, y[1000:2000]
    one.learn(rest, 200)
    two = Part(one.give())
    last = {name: column[2000:] for name, column in X.items()}, y[2000:]
    a, b = one.learn(last, 200), two.learn(last, 200)
    for said, again in zip(a.said, b.said, strict=True):
        np.testing.assert_array_equal(said, again)
        assert said.shape[0] == 2
    assert models.to_bytes(one.model) == models.to_bytes(two.model)
