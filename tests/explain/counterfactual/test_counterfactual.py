"""The nearest row with another prediction: confirmed by the model, within limits, none nearer."""

import ast
import functools
import itertools
import math
import re
import sys
import time

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError

from driftree import DynamicModelTreeClassifier, DynamicModelTreeRegressor
from driftree.explain.contributions import read_row
from driftree.explain.counterfactual import counterfactual, find_nearest
from driftree.explain.counterfactual.goals import Constraints
from driftree.explain.counterfactual.leaf_tasks import Curves, Start
from driftree.explain.describe import inside
from driftree.explain.explanation import zero_of

LEVELS = ["bus", "car", "van", "walk"]
PAPER = {"setting": "paper"}
ROUNDING = 0.005  # what it may add to a distance here


def make_columns(n_rows, seed, scale=1.0, missing=0.0):
    """Numbers of any scale, one of them only 0 and 1, a category; some missing."""
    rng = np.random.default_rng(seed)
    way = rng.choice(LEVELS, n_rows).astype(object)
    columns = {
        "income": rng.normal(size=n_rows) * scale,
        "age": rng.normal(5.0, 1.0, n_rows),
        "way": way,
        "member": rng.integers(0, 2, n_rows).astype(float),
    }
    if missing:
        for values in columns.values():
            values[rng.random(n_rows) < missing] = None if values.dtype == object else math.nan
    return columns


def label(columns, scale, n_labels, turn):
    """A rule whose slope turns where `turn` says, so that it takes a split or a bend there."""
    side = {
        "age": columns["age"] > 5,
        "income": np.nan_to_num(columns["income"] / scale) > 0,
        "way": columns["way"] == "bus",
        "gap": np.isnan(columns["income"]),
    }
    score = np.where(side[turn], 1, -1) * np.nan_to_num(columns["age"] - 5, nan=0.5) * 2
    score += (columns["way"] == "bus") * 1.0 - (columns["way"] == "car")
    score += np.nan_to_num(columns["member"]) * 0.7
    if turn == "age":
        score -= np.abs(np.nan_to_num(columns["income"] / scale, nan=0.5)) * 1.5
    cuts = np.quantile(score, np.arange(1, n_labels) / n_labels)
    return np.digitize(score, cuts)


@functools.cache
def learn(*, n_labels=2, scale=1.0, missing=0.0, turn="income", n_rows=3000, **parameters):
    model = DynamicModelTreeClassifier(**parameters)
    columns = make_columns(n_rows, 1, scale, missing)
    labels = label(columns, scale, n_labels, turn)
    for i in range(0, n_rows, 100):
        rows = {name: values[i : i + 100] for name, values in columns.items()}
        model.learn_many(rows, [f"grade {code}" for code in labels[i : i + 100]])
    return model


def row_of(columns, i):
    return {name: values[i] for name, values in columns.items()}


def units_of(model):
    """One standard deviation (paper: the range seen); a category and 0/1 count 1 per change."""
    engine = model._tree.engine
    one = 1.0 if model.setting == "paper" else 0.5
    return {name: one / engine.scale_factor[j] for j, name in enumerate(["income", "age"])}


def distances(model, x, columns):
    total = np.zeros(len(columns["way"]))
    for name, unit in units_of(model).items():
        if not is_missing(x[name]):
            total += ((columns[name] - x[name]) / unit) ** 2
    for name in ("way", "member"):
        if not is_missing(x[name]):
            total += columns[name] != x[name]
    return np.sqrt(total)


def is_missing(value):
    return value is None or (isinstance(value, float) and math.isnan(value))


def random_rows(model, x, reach, seed, fixed=(), ranges=None, n_rows=20_000):
    """Rows around x in the allowed region, the missing missing; many share values with x."""
    rng, ranges = np.random.default_rng(seed), ranges or {}
    columns = {}
    for name, unit in units_of(model).items():
        steps = rng.normal(size=n_rows) * rng.choice([0.1, 0.5, 1.0], n_rows) * reach * unit
        low, high = ranges.get(name, (None, None))
        columns[name] = x[name] + steps * (rng.random(n_rows) < 0.8)
        columns[name] = np.clip(
            columns[name], -math.inf if low is None else low, math.inf if high is None else high
        )
    for name, levels in {"way": LEVELS, "member": [0.0, 1.0]}.items():
        allowed = ranges.get(name, levels)
        stays = (rng.random(n_rows) < 0.5) & (x[name] in allowed or name not in ranges)
        columns[name] = np.where(stays, x[name], rng.choice(np.array(allowed, object), n_rows))
    columns["member"] = columns["member"].astype(float)
    for name, values in columns.items():
        if name in fixed or is_missing(x[name]):
            columns[name] = np.full(n_rows, x[name], values.dtype)
    return columns


def check(model, x, *, target=None, fixed=(), ranges=None):
    """What must hold for every answer; returns it."""
    result = counterfactual(model, x, target=target, fixed=fixed, ranges=ranges)
    before = model.predict_one(x)

    def wanted(labels):
        return labels != before if target is None else labels == target

    if result:
        assert model.predict_one(result.x) == result.target
        assert wanted(np.array([result.target], object)).all()
        assert result.probability == model.predict_proba_one(result.x)[result.target]
        changed = {name for name in x if result.x[name] is not x[name]}
        assert changed == set(result.changes)
        assert changed.isdisjoint(fixed)
        assert all(result.changes[name] == (x[name], result.x[name]) for name in changed)
        moved = {name: np.array([value], object) for name, value in result.x.items()}
        for name in ("income", "age", "member"):
            moved[name] = moved[name].astype(float)
        assert distances(model, x, moved)[0] == pytest.approx(result.distance, rel=1e-9)
    exact = math.sqrt(find_nearest(model, x, target=target, fixed=fixed, ranges=ranges).cost)
    if result:
        assert exact * (1 - 1e-9) <= result.distance <= exact + ROUNDING
    reach = exact if 0 < exact < math.inf else 3.0
    for seed in range(2):
        others = random_rows(model, x, reach, seed, fixed, ranges)
        is_target = wanted(np.asarray(model.predict_many(others), object))
        nearest = distances(model, x, others)[is_target].min(initial=math.inf)
        assert nearest >= exact * (1 - 1e-6)
    assert result.exact
    return result


# ---------------------------------------------------------------------- numbers
GOALS = {"below": -3.0, "above": 4.0, "between": (0.5, 0.75)}


def learn_numbers(**settings):
    """A regressor whose number bends and splits; it follows its target unless told not to."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(4000, 3))
    y = 3 * np.abs(X[:, 0]) + np.where(X[:, 1] > 0.5, 2 * X[:, 2], -2 * X[:, 2])
    return DynamicModelTreeRegressor(**settings).partial_fit(X, 100 * y + 1e4)


def is_wanted(numbers, goal, limits):
    low, high = {"below": (-math.inf, limits), "above": (limits, math.inf)}.get(goal, limits)
    return (low < numbers) & (numbers < high)


@pytest.mark.parametrize("settings", [{}, {"max_bends": 0}, {"setting": "paper"}], ids=str)
@pytest.mark.parametrize("goal", GOALS)
def test_no_row_with_such_a_number_is_nearer(goal, settings):
    model = learn_numbers(**settings)
    engine = model._tree.engine
    limits = 100 * np.array(GOALS[goal]) + 1e4
    limits = float(limits) if limits.ndim == 0 else tuple(limits.tolist())
    unit = (1.0 if settings.get("setting") == "paper" else 0.5) / engine.scale_factor[-3:]
    rng = np.random.default_rng(2)
    for row in rng.normal(size=(8, 3)):
        x = {f"x{j}": value for j, value in enumerate(row.tolist())}
        result = counterfactual(model, x, **{goal: limits})
        assert result.exact
        exact = math.sqrt(find_nearest(model, x, **{goal: limits}).cost)
        reach = exact if 0 < exact < math.inf else 3.0
        others = row + rng.normal(size=(4000, 3)) * reach * unit
        fits = is_wanted(model.predict(others), goal, limits)
        ways = np.linalg.norm((others - row) / unit, axis=1)
        assert ways[fits].min(initial=math.inf) >= exact * (1 - 1e-6)
        assert bool(result) == (exact < math.inf)
        if result:
            assert is_wanted(result.prediction, goal, limits)
            assert model.predict_one(result.x) == pytest.approx(result.prediction, rel=1e-12)
            assert exact * (1 - 1e-9) <= result.distance <= exact + ROUNDING
            assert set(result.x) == set(x)
            said = float(result.said.replace(",", ""))
            assert is_wanted(said, goal, limits)
            assert f"be {result.said} if " in str(result) or "already" in str(result)


def test_nobody_can_change_what_the_target_was():
    model = learn_numbers()
    for y in np.random.default_rng(1).normal(size=2000).cumsum().tolist():
        model.learn_one({"x0": 0.0}, y)
    x = {"x0": 0.0, "x1": 0.0, "x2": 0.0, "shoes": 1}
    assert model.explain_one(x).contributions["last y"]
    before = model.predict_one(x)
    result = counterfactual(model, x, below=before - 20, fixed=["x0", "x1", "x2"])
    assert not result
    assert f"Nothing makes it below {before - 20:.0f}"[:25] in str(result)
    assert "x0, x1, x2 are fixed" in str(result)
    assert result.note == "Not known to the model: 'shoes'."
    assert (result.prediction, result.target) == (None, result.said)


@pytest.mark.parametrize(
    ("wish", "message"),
    [
        ({}, "give the wanted range, .* got none of them"),
        ({"below": 1, "above": 0}, "got below and above"),
        ({"below": "much"}, "below must be a number, got 'much'"),
        ({"above": math.inf}, "above must be a number, got inf"),
        ({"between": (3, 2)}, r"between must be two numbers, the lower first, got \(3, 2\)"),
        ({"between": 3}, "between must be two numbers, the lower first, got 3"),
        ({"target": "high"}, "target is for classifiers, .* got target='high'"),
    ],
)
def test_which_numbers_are_wanted_is_checked(wish, message):
    model = learn_numbers()
    with pytest.raises(ValueError, match=message):
        model.counterfactual({"x0": 0.0}, **wish)


@pytest.mark.parametrize("goal", GOALS)
def test_labels_are_not_below_anything(goal):
    with pytest.raises(
        ValueError, match=f"{goal} is for regressors, but the model predicts labels"
    ):
        learn().counterfactual({"income": 1.0}, **{goal: GOALS[goal]})


# ---------------------------------------------------------------------- nothing is nearer
MODELS = {
    "two labels": {},
    "four labels": {"n_labels": 4},
    "missing": {"missing": 0.2, "n_labels": 3},
    "splits of a category": {"turn": "way", "max_bends": 0},
    "splits by what is missing": {"turn": "gap", "missing": 0.4, "max_bends": 0},
    "tiny": {"scale": 1e-100},
    "huge": {"scale": 1e100},
    "bends": {"turn": "age"},
    "bends, four labels": {"turn": "age", "n_labels": 4},
    "bends and missing": {"turn": "age", "n_labels": 3, "missing": 0.2},
    "tiny bends": {"turn": "age", "scale": 1e-100},
    "bends and splits": {"turn": "way"},
    "paper": PAPER,
    "paper, three labels": {**PAPER, "n_labels": 3, "missing": 0.1},
}
LIMITS = [
    {},
    {"fixed": ["age"]},
    {"fixed": ["income", "member"], "ranges": {"way": ["car", "van"]}},
    {"ranges": {"age": (4.5, 6.0), "way": ["bus", "walk"]}},
]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("limits", LIMITS, ids=["free", "age fixed", "way ranged", "age ranged"])
def test_confirmed_within_limits_and_nothing_nearer(name, limits):
    settings = MODELS[name]
    model = learn(**settings)
    columns = make_columns(200, 7, settings.get("scale", 1.0), settings.get("missing", 0.0))
    n_found = 0
    for i, target in itertools.product(range(5), [None, "grade 0"]):
        x = row_of(columns, i)
        result = check(model, x, target=target, **limits)
        n_found += result.exists
        for ranged, allowed in limits.get("ranges", {}).items():
            if not result or is_missing(x[ranged]):
                continue
            if ranged == "age":
                assert allowed[0] <= result.x["age"] <= allowed[1]
            else:
                assert result.x[ranged] in allowed
    assert n_found >= 2


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("two labels", "income <="),
        ("four labels", "income <="),
        ("splits of a category", "way == 'bus'"),
        ("splits by what is missing", "income is missing"),
        ("huge", "income <="),
    ],
)
def test_the_trees_here_have_the_splits_they_are_for(name, split):
    tree = learn(**MODELS[name])._tree
    assert any(split in str(tree.path(leaf)[0]) for leaf in tree.leaves())


@pytest.mark.parametrize("name", [name for name in MODELS if "bends" in name])
def test_the_trees_here_have_the_bends_they_are_for(name):
    assert max(n_bends(learn(**MODELS[name]))) >= 3


def n_bends(model):
    engine = model._tree.engine
    return [len(engine.bends(int(engine.model[leaf]))) for leaf in model._tree.leaves()]


def test_a_noise_floor_moves_the_border():
    rng = np.random.default_rng(1)
    X = rng.uniform(size=(20_000, 2))
    y = (X.sum(axis=1) > 1) | (rng.random(len(X)) < 0.2)
    model = DynamicModelTreeClassifier(max_depth=0).partial_fit(X, y)
    engine = model._tree.engine
    floor = engine.floor(int(engine.model[0]))
    assert abs(zero_of(floor)) > 0.2
    for row in X[:20].tolist():
        result = counterfactual(model, {"x0": row[0], "x1": row[1]})
        assert model.predict_one(result.x) == result.target
        assert result.probability == pytest.approx(0.5, abs=0.01)
        exact = find_nearest(model, {"x0": row[0], "x1": row[1]}, target=None, fixed=(), ranges={})
        assert engine.probabilities(exact.best[None])[0] == pytest.approx([0.5, 0.5], abs=1e-9)


@pytest.mark.parametrize(
    "settings",
    [{}, {"n_labels": 3}, PAPER, MODELS["bends"], MODELS["bends, four labels"]],
    ids=["two", "three", "paper", "bends", "bends, four"],
)
@pytest.mark.parametrize("start", [(0.3, 5.4), (-6.0, 5.0), (4.0, 12.0)])
def test_agrees_with_a_fine_grid(settings, start):
    model = learn(**settings)
    x = {"income": start[0], "age": start[1], "way": "car", "member": 0.0}
    units = units_of(model)
    result = check(model, x)
    axes = [
        np.append(np.linspace(x[name] - width, x[name] + width, 301), x[name])
        for name, width in ((name, 1.2 * result.distance * units[name]) for name in units)
    ]
    income, age = (axis.ravel() for axis in np.meshgrid(*axes))
    best = math.inf
    for way, member in itertools.product(LEVELS, [0.0, 1.0]):
        n_rows = len(income)
        grid = {"income": income, "age": age}
        grid |= {"way": np.full(n_rows, way, object), "member": np.full(n_rows, member)}
        differs = np.asarray(model.predict_many(grid)) != model.predict_one(x)
        best = min(best, distances(model, x, grid)[differs].min(initial=math.inf))
    spacing = 2.4 * result.distance / 300
    assert result.distance - ROUNDING <= best <= result.distance + 2 * spacing


def test_beyond_three_deviations_the_model_is_flat_but_the_way_back_counts():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(3000, 2))
    model = DynamicModelTreeClassifier(max_depth=0).partial_fit(X, X[:, 0] + 0.3 * X[:, 1] > 0)
    x = {"x0": 7.0, "x1": 0.0}
    came_back = counterfactual(model, x)
    assert -0.5 < came_back.x["x0"] < 1.0
    assert 6.0 < came_back.distance < 7.5
    stayed = counterfactual(model, x, ranges={"x0": (4, None)})
    assert not stayed  # flat there, and x1 cannot make up for it


def test_many_numbers_beyond_the_clipped_range_may_stay_or_come_back():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(3000, 9))
    model = DynamicModelTreeClassifier(max_depth=0, max_bends=0).partial_fit(X, X.sum(axis=1) > 0)
    x = {f"x{j}": 3.5 for j in range(9)}
    result = counterfactual(model, x)
    assert model.predict_one(result.x) == result.target
    assert result.exact
    values, units = np.array(list(x.values())), 0.5 / np.array(model._tree.engine.scale_factor)
    nearest = np.array(list(result.x.values()))
    for size in (0.01, 0.1, 0.5):
        others = nearest + rng.normal(size=(20_000, 9)) * size * units
        others = np.where(rng.random(others.shape) < 0.1, values, others)
        is_other = model.predict(others) == result.target
        ways = np.linalg.norm((others[is_other] - values) / units, axis=1)
        assert ways.min(initial=math.inf) >= result.distance - ROUNDING


# ---------------------------------------------------------------------- bends
@functools.cache
def bent(n_features=2, n_labels=2):
    """A rule of distances from the middle, which lines have no words for."""
    rng = np.random.default_rng(1)
    X = rng.uniform(-1, 1, size=(2000 * n_features, n_features))
    score = np.abs(X[:, :1] if n_features == 2 else X).mean(axis=1)
    score += rng.normal(size=len(X)) * 0.02
    y = np.digitize(score, np.quantile(score, np.arange(1, n_labels) / n_labels))
    return DynamicModelTreeClassifier(max_depth=0).partial_fit(X, y)


def test_a_bend_gives_a_way_out_on_both_sides():
    model = bent()
    assert "bend" in [event.kind for event in model.events_]
    for value in (-0.2, 0.2):
        result = counterfactual(model, {"x0": value, "x1": 0.0})
        assert result.exact
        assert result.x["x0"] * value > 0
        assert 0.4 < abs(result.x["x0"]) < 0.6
        across = counterfactual(
            model, {"x0": value, "x1": 0.0}, ranges={"x0": sorted([0, -value * 5])}
        )
        assert -0.6 < across.x["x0"] / math.copysign(1.0, value) < -0.4


def test_the_default_tree_bends_and_what_it_says_holds():
    rng = np.random.default_rng(1)
    X = rng.uniform(-1, 1, size=(4000, 2))
    y = (np.abs(X[:, 0]) > 0.5) ^ (rng.random(4000) < 0.02)
    model = DynamicModelTreeClassifier().partial_fit(X, y)
    assert "bend" in [event.kind for event in model.events_]
    for x0, x1 in X[:20].tolist():
        result = counterfactual(model, {"x0": x0, "x1": x1})
        assert result.exact
        assert (
            model.predict_one(result.x) == result.target != model.predict_one({"x0": x0, "x1": x1})
        )
        assert abs(result.x["x0"]) == pytest.approx(0.5, abs=0.1)


@pytest.mark.parametrize("n_labels", [2, 3])
@pytest.mark.parametrize("n_features", [2, 3])
def test_nothing_on_a_grid_is_nearer_where_it_bends(n_features, n_labels):
    model = bent(n_features, n_labels)
    assert max(n_bends(model)) >= 2
    units = 0.5 / np.array(model._tree.engine.scale_factor)
    n_steps = 400 if n_features == 2 else 70
    axis = np.linspace(-1.2, 1.2, n_steps)
    grid = np.stack(np.meshgrid(*[axis] * n_features), axis=-1).reshape(-1, n_features)
    labels = model.predict(grid)
    spacing = np.linalg.norm(2.4 / n_steps / units)
    for values in np.random.default_rng(2).uniform(-1.1, 1.1, size=(12, n_features)):
        x = {f"x{j}": value for j, value in enumerate(values.tolist())}
        ways = np.linalg.norm((grid - values) / units, axis=1)
        for target in range(n_labels):
            hunt = find_nearest(model, x, target=target, fixed=(), ranges=None)
            result = counterfactual(model, x, target=target)
            assert result.exact
            assert model.predict_one(result.x) == target
            near = ways[labels == target].min()
            assert math.sqrt(hunt.cost) * (1 - 1e-9) <= near <= math.sqrt(hunt.cost) + spacing


@pytest.mark.parametrize("name", ["bends", "bends and missing", "tiny bends", "paper"])
def test_pieces_say_what_the_models_inputs_do(name):
    settings = MODELS[name]
    model = learn(**settings)
    tree, encoder = inside(model)
    engine, rng = tree.engine, np.random.default_rng(5)
    columns = make_columns(20, 9, settings.get("scale", 1.0), settings.get("missing", 0.0))
    for i, leaf in itertools.product(range(20), tree.leaves()):
        values = read_row(encoder, row_of(columns, i))
        values[:2] = np.where(rng.random(2) < 0.3, values[:2] * 9, values[:2])
        limits = Constraints.open(len(values))
        start = Start(tree, encoder, values, limits)
        demands = rng.normal(
            size=(3, engine.n_columns + len(engine.bends(int(engine.model[leaf]))))
        )
        before = engine.inputs_at(leaf, values[None])[0]
        for j in np.flatnonzero(~np.isnan(start.units[:2]) & ~np.isnan(values[:2])).tolist():
            pieces = Curves(start, leaf).pieces(j, -math.inf, math.inf, demands)
            assert any(piece.low <= values[j] <= piece.high for piece in pieces)
            for piece in pieces:
                other = values.copy()
                other[j] = rng.uniform(piece.low, piece.high)
                shift = (other[j] - values[j]) / start.units[j]
                change = demands @ (engine.inputs_at(leaf, other[None])[0] - before)
                assert piece.gains + piece.slopes * shift == pytest.approx(change, abs=1e-9)


def test_many_bent_numbers_take_little_time():
    model = bent(16)
    engine = model._tree.engine
    assert len({j for j, *_ in engine.bends(int(engine.model[0]))}) >= 8
    rng = np.random.default_rng(3)
    start = time.perf_counter()
    for values in rng.uniform(-1, 1, size=(10, 16)).tolist():
        result = counterfactual(model, {f"x{j}": value for j, value in enumerate(values)})
        assert result.exact
    assert time.perf_counter() - start < 3.0


def test_a_search_cut_short_says_so(monkeypatch):
    model = bent(2, 3)
    values = np.random.default_rng(3).uniform(-1, 1, size=(20, 2)).tolist()
    rows = [{f"x{j}": value for j, value in enumerate(row)} for row in values]
    full = [counterfactual(model, row, target=2) for row in rows]
    assert all(result.exact for result in full)
    monkeypatch.setattr(sys.modules["driftree.explain.counterfactual"], "MAX_NODES", 1)
    cut = [counterfactual(model, row, target=2) for row in rows]
    assert not all(result.exact for result in cut)
    for result, best in zip(cut, full, strict=True):
        assert result.distance >= best.distance - ROUNDING
        if result.exact:
            assert result.distance == pytest.approx(best.distance, abs=ROUNDING)
        if not result:
            assert str(result) == "Nothing was found that makes it 2: the search was cut short."


# ---------------------------------------------------------------------- kinds of features
def test_an_unseen_level_may_stay_or_become_a_known_one():
    model = learn()
    x = {"income": 0.5, "age": 4.5, "way": "submarine", "member": 1.0}
    assert check(model, x, fixed=["way"]).x["way"] == "submarine"
    assert check(model, x, ranges={"way": ["submarine"]}).x["way"] == "submarine"
    assert check(model, x, ranges={"way": ["bus"]}).x["way"] == "bus"


def test_later_levels_share_an_input_and_can_be_asked_for():
    model = DynamicModelTreeClassifier()
    for i in range(3000):
        code = i % 32 if i < 320 else i % 40
        model.learn_one({"town": f"town {code}"}, "far" if code >= 32 else "near")
    x = {"town": "town 3"}
    assert not counterfactual(model, x)  # the later ones are known to be some, not by name
    assert counterfactual(model, x, ranges={"town": ["town 35"]}).x == {"town": "town 35"}
    later = {"town": "town 36"}
    assert counterfactual(model, later, ranges={"town": ["town 35", "town 2"]}).distance == 1.0
    assert not counterfactual(model, later, target="far", ranges={"town": ["town 35"]})


def test_zero_and_one_stay_zero_or_one_and_whole():
    rng = np.random.default_rng(1)
    model = DynamicModelTreeClassifier()
    for a, b in rng.integers(0, 2, (2000, 2)).tolist():
        model.learn_one({"a": a, "b": b}, a or b)
    result = counterfactual(model, {"a": 0, "b": 0})
    assert result.distance == 1.0
    assert sorted(result.x.values()) == [0, 1]
    assert all(type(value) is int for value in result.x.values())
    assert "were 1 instead of 0" in str(result)
    assert counterfactual(model, {"a": 1, "b": 1}).distance == pytest.approx(math.sqrt(2))


def test_what_never_varied_does_not_move():
    rng = np.random.default_rng(1)
    X = np.column_stack([rng.normal(size=2000), np.full(2000, 3.0)])
    model = DynamicModelTreeClassifier().partial_fit(X, X[:, 0] > 0)
    assert set(counterfactual(model, {"x0": 1.0, "x1": 3.0}).changes) == {"x0"}
    moved = counterfactual(model, {"x0": 1.0, "x1": 3.0}, ranges={"x1": (4, None)})
    assert moved.changes["x1"] == (3.0, 4.0)
    alone = counterfactual(model, {"x0": 1.0, "x1": 3.0})
    assert moved.distance**2 == pytest.approx(alone.distance**2 + 1)


def test_missing_stays_missing_and_its_leaves_out_of_reach():
    rng = np.random.default_rng(1)
    model = DynamicModelTreeClassifier()
    for value, is_gone in zip(rng.normal(size=3000), rng.random(3000) < 0.5, strict=True):
        model.learn_one({"a": None if is_gone else value}, "gone" if is_gone else "here")
    result = counterfactual(model, {"a": 0.3})
    assert not result
    assert "gives this label to no row" in result.reason
    gone = counterfactual(model, {})
    assert not gone
    assert "with the same features missing" in gone.reason


def test_numbers_named_categorical_in_the_papers_setting():
    rng = np.random.default_rng(1)
    X = np.column_stack([rng.integers(0, 5, 4000), rng.uniform(size=4000)]).astype(float)
    y = (X[:, 0] == 3) ^ (X[:, 1] > 0.5)
    model = DynamicModelTreeClassifier.paper(categorical=[0]).partial_fit(X[:2000], y[:2000])
    model.partial_fit(X[2000:], y[2000:])
    result = counterfactual(model, {"x0": 1.0, "x1": 0.2}, ranges={"x0": [0, 1, 2, 3, 4]})
    assert model.predict_one(result.x) == result.target
    assert result.x["x0"] in {0, 1, 2, 3, 4}
    x = {"x0": 4.0, "x1": 0.9}
    unlisted = counterfactual(model, x, fixed=["x1"])
    assert (unlisted.exists, unlisted.exact) == (False, False)
    assert str(unlisted) == (
        "Nothing was found that makes it False: the paper's setting does not know all values of "
        "x0: give them in ranges."
    )
    assert counterfactual(model, x, ranges={"x0": [4]}).exact
    assert counterfactual(model, x, fixed=["x0"]).exact


def test_of_several_quantiles_it_is_not_certain():
    x = {"x0": 0.3, "x1": 0.3, "x2": 0.3}
    for quantiles, is_certain in (((0.5,), True), ((0.1, 0.5, 0.9), False)):
        model = learn_numbers(loss="quantile", quantiles=quantiles)
        assert counterfactual(model, x, above=model.predict_one(x) + 50).exact == is_certain
        assert counterfactual(model, x, above=1e9).exact == is_certain
    none = counterfactual(model, x, above=1e9)
    assert str(none).endswith("the search does not find rows in which predicted quantiles cross.")


# ---------------------------------------------------------------------- answers
def test_nothing_changes_what_is_so_already():
    model = learn()
    x = row_of(make_columns(1, 3), 0)
    result = counterfactual(model, x, target=model.predict_one(x), fixed=list(x))
    assert (result.exists, result.changes, result.distance, result.x) == (True, {}, 0.0, x)
    assert re.fullmatch(
        r"It is 'grade \d' already \([\d.]+%\): nothing has to change\.", str(result)
    )


def test_a_range_moves_even_what_is_so_already():
    model = learn()
    x = {"income": 1.0, "age": 8.0, "way": "bus", "member": 1.0}
    before = model.predict_one(x)
    result = counterfactual(model, x, target=before, ranges={"age": (None, 7)})
    assert result.changes == {"age": (8.0, 7.0)}
    assert result.target == before


def test_none_exists_and_why():
    model = learn()
    x = {"income": 1.0, "age": 8.0, "way": "bus", "member": 1.0}
    result = counterfactual(model, x, fixed=list(x)[1:], ranges={"income": (0.9, 1.1)})
    assert (bool(result), result.x, result.leaf, result.changes) == (False, None, None, {})
    assert result.distance == math.inf
    assert math.isnan(result.probability)
    assert result.exact
    assert str(result).startswith(
        "Nothing makes it 'grade 0': age, way, member are fixed and income has a range; "
        "without these limits it would be if "
    )
    only = DynamicModelTreeClassifier()
    only.learn_one({"a": 1.0}, "yes")
    assert str(counterfactual(only, {"a": 1.0})) == (
        "Nothing makes it anything else: 'yes' is the only label that was learnt."
    )


def test_the_row_comes_back_as_it_came_and_the_leaf_is_the_models():
    model = learn()
    x = {"nobody": "knows", **row_of(make_columns(1, 3), 0), "income": None}
    del x["member"]
    before = dict(x)
    result = counterfactual(model, x)
    assert x == before
    assert list(result.x) == list(x)
    assert (result.x["nobody"], result.x["income"]) == ("knows", None)
    assert [str(condition) for condition in result.path] == [
        str(condition) for condition in model._tree.path(result.leaf)
    ]


def test_the_sentence_says_the_furthest_first_and_not_everything():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(3000, 12)) * [1e-9, 1e9, *[1] * 10]
    y = X @ [3e9, 2e-9, *np.linspace(1, 0.5, 10)] > 0
    model = DynamicModelTreeClassifier(max_depth=0).partial_fit(X, y)
    text = str(counterfactual(model, {f"x{j}": 0.0 for j in range(12)}, target=not y[0]))
    text = str(counterfactual(model, dict(zip((f"x{j}" for j in range(12)), X[0], strict=True))))
    assert re.match(
        r"It would be (True|False) \(50%\) if x0 were \S+ instead of \S+, x1 were ", text
    )
    assert text.endswith(" and 7 other features changed less.")


def test_numbers_that_differ_look_different():
    model = DynamicModelTreeClassifier()
    for value in np.random.default_rng(1).uniform(20_000, 20_001, 2000):
        model.learn_one({"a": value}, bool(value > 20_000.5))
    hunt = find_nearest(model, {"a": 20_000.4}, target=None, fixed=(), ranges=None)
    edge = hunt.best[0]
    text = str(counterfactual(model, {"a": edge - 1e-6}))
    after, before = (float(one.replace(",", "")) for one in re.findall(r"20,000\.\d+", text))
    assert edge <= after < edge + 0.01
    assert edge - 0.01 < before < after


# ---------------------------------------------------------------------- mistakes
@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"target": "grade 9"}, ValueError, r"got 'grade 9' \(did you mean 'grade \d'\?\): choose"),
        ({"fixed": ["aeg"]}, ValueError, r"fixed names 'aeg' \(did you mean 'age'\?\), but the"),
        (
            {"target": ["grade 1"]},
            ValueError,
            r"must be a label that was learnt, got \['grade 1'\]",
        ),
        ({"fixed": [["age"]]}, ValueError, r"fixed names \['age'\] \(did you mean 'age'"),
        ({"fixed": "age"}, TypeError, r"write \['age'\]"),
        ({"ranges": {"incom": (0, 1)}}, ValueError, r"did you mean 'income'"),
        ({"ranges": {"age": (2, 1)}}, ValueError, r"got \(2, 1\): nothing lies between"),
        ({"ranges": {"age": (math.nan, 1)}}, ValueError, r"nothing lies between"),
        ({"ranges": {"age": 3}}, ValueError, r"ranges\['age'\] must be \(low, high\)"),
        ({"ranges": {"age": ("a", "b")}}, ValueError, r"must be \(low, high\)"),
        ({"ranges": {"way": []}}, ValueError, r"ranges\['way'\] is empty"),
        ({"ranges": {"way": "bus"}}, TypeError, r"must be a list of levels, got 'bus'"),
        ({"ranges": {"way": ["vam"]}}, ValueError, r"'vam' \(did you mean 'van'\?\)"),
        ({"ranges": ["age"]}, TypeError, r"ranges must be a dict"),
    ],
)
def test_mistakes_are_told(arguments, error, message):
    x = {"income": 1.0, "age": 8.0, "way": "bus", "member": 1.0}
    with pytest.raises(error, match=message):
        counterfactual(learn(), x, **arguments)


@pytest.mark.parametrize(
    ("x", "ranges"), [({"age": 1e200, "income": 1.0}, {}), ({"age": 5.0}, {"age": (1e200, None)})]
)
@pytest.mark.parametrize(
    ("settings", "unit"), [({}, "standard deviations"), (PAPER, "times the range seen")]
)
def test_what_is_too_far_to_be_measured_is_told(x, ranges, settings, unit):
    with pytest.raises(ValueError, match=rf"'age' is .* more than 1e\+100 {unit} .* its unit"):
        counterfactual(learn(**settings), x, ranges=ranges)


def test_needs_a_model_and_a_row():
    with pytest.raises(NotFittedError):
        counterfactual(DynamicModelTreeClassifier(), {"a": 1.0})
    with pytest.raises(TypeError, match="a row must be a dict"):
        counterfactual(learn(), [1.0])
    with pytest.raises(TypeError, match=r"a row must be a dict .* as \.iloc\[0\]\.to_dict\(\)"):
        counterfactual(learn(), pd.DataFrame({"age": [1.0]}))
    with pytest.raises(ValueError, match="numeric"):
        counterfactual(learn(), {"age": "old"})


def test_is_fast_with_many_features_and_leaves():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(20_000, 50))
    X[:, :10] = rng.integers(0, 5, size=(20_000, 10))
    y = (np.sin(3 * X[:, 20]) + 0.3 * X[:, 21:].sum(axis=1) / 5 + (X[:, 0] == 2) > 0).astype(int)
    model = DynamicModelTreeClassifier(epsilon=0.9, categorical=list(range(10))).fit(X, y)
    assert model.n_leaves_ >= 4
    start = time.perf_counter()
    for row in X[:5].tolist():
        assert counterfactual(model, {f"x{j}": value for j, value in enumerate(row)}).exact
    assert time.perf_counter() - start < 5.0


# ---------------------------------------------------------------------- taken at its word
def said(text):
    """Read the changes from the sentence."""
    changes = {}
    for name, value in re.findall(r"(\w+) were (\S+) instead of", text):
        is_number = name in ("income", "age")
        changes[name] = float(value.replace(",", "")) if is_number else ast.literal_eval(value)
    return changes


@pytest.mark.parametrize("name", MODELS)
def test_what_is_said_can_be_done(name):
    settings = MODELS[name]
    model = learn(**settings)
    columns = make_columns(12, 11, settings.get("scale", 1.0), settings.get("missing", 0.0))
    n_digits = []
    for i, limits in itertools.product(range(12), LIMITS):
        for target in (None, "grade 1"):
            x = row_of(columns, i)
            result = counterfactual(model, x, target=target, **limits)
            if not result.changes:
                continue
            changes = said(str(result))
            assert {**x, **changes} == result.x
            assert model.predict_one({**x, **changes}) == result.target
            numbers = [changes[name] for name in ("income", "age") if name in changes]
            n_digits += [len(f"{number!r}".split("e")[0].strip("-0.")) - 1 for number in numbers]
    assert np.quantile(n_digits, 0.85) <= 4  # at a knot both sides of a number may be worse


def test_a_value_just_beyond_an_edge_is_rounded_beyond_it():
    X = np.random.default_rng(1).uniform(-1, 1, size=(4000, 2))
    model = DynamicModelTreeClassifier(max_bends=0).partial_fit(X, (X[:, 0] > 0) ^ (X[:, 1] > 0))
    edge = model.events_[0].condition
    assert edge.operator == "<="
    other = "x1" if edge.feature == "x0" else "x0"
    result = model.counterfactual({edge.feature: -0.01, other: 0.9}, fixed=[other])
    [(_, new)] = result.changes.values()
    assert edge.value < new < edge.value + 1e-5
    assert str(result).endswith(f"if {edge.feature} were {new:.4g} instead of -0.01.")


def test_a_range_that_ends_between_round_numbers_is_kept_to():
    X = np.random.default_rng(1).normal(size=(3000, 2))
    model = DynamicModelTreeClassifier(max_depth=0).partial_fit(X, X[:, 0] + 0.3 * X[:, 1] > 0)
    x, end = {"x0": -1.0, "x1": 0.0}, -0.123456789
    result = model.counterfactual(x, ranges={"x0": (None, end)})
    assert -0.1235 <= result.x["x0"] <= end
    assert [value == round(value, 8) for value in result.x.values()] == [True, True]
    assert model.predict_one(result.x) == result.target


@pytest.mark.filterwarnings("ignore:the rows hold no feature")
def test_names_that_nobody_knows_are_told():
    model = learn()
    x = {"income": 0.5, "Agee": 4.5, "shoes": "red", "way": "bus", "member": 1.0}
    words = "Not known to the model: 'Agee' (did you mean 'age'?), 'shoes'."
    result = counterfactual(model, x)
    assert (result.note, str(result).endswith(f". {words}")) == (words, True)
    assert str(counterfactual(model, x, fixed=["income", "way", "member"])).endswith(f". {words}")
    assert counterfactual(model, {"income": 0.5}).note == ""
    assert counterfactual(model, pd.Series({"income": 0.5, "age": 4.0})).note == ""


def test_a_label_is_said_on_one_line_and_near_certainty_is_not_certainty():
    model = DynamicModelTreeClassifier()
    for value in np.random.default_rng(1).uniform(-1, 1, size=4000).tolist():
        model.learn_one({"a": value}, "no\nway" if value < 0 else "yes " * 30)
    low = counterfactual(model, {"a": 1.0}, target="no\nway")
    high = counterfactual(model, {"a": 1.0}, target="yes " * 30)
    assert re.match(r"It would be 'no\\nway' \(\d\d(\.\d)?%\) if ", str(low))
    assert re.match(r"It is 'yes .{1,30}….{1,30}' already \(99\.\d%\): ", str(high))
