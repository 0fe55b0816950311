"""Counterfactuals with few changes: as few as can be, the nearest of them, whole and sure."""

import itertools
import math

import numpy as np
import pytest

from driftree import DynamicModelTreeClassifier, DynamicModelTreeRegressor
from driftree.explain import counterfactual

JOBS = ("none", "part", "full")


def rows(n, seed=7):
    rng = np.random.default_rng(seed)
    for _ in range(n):
        yield {
            "age": int(rng.integers(20, 60)),
            "kids": int(rng.integers(0, 5)),
            "job": str(rng.choice(JOBS)),
            "debt": round(float(rng.normal(5, 2)), 1),
        }


def taught(n_labels=2):
    """A tree over whole numbers, a category and a number."""
    rng = np.random.default_rng(1)
    model = DynamicModelTreeClassifier()
    for x in rows(1500, seed=1):
        score = x["age"] / 20 + JOBS.index(x["job"]) - x["debt"] / 2
        score = (-score if x["kids"] > 2 else score) + rng.normal(0, 0.3)
        model.learn_one(x, f"label {np.clip(round(score / 2 + 1), 0, n_labels - 1)}")
    return model


@pytest.fixture(scope="module")
def model():
    return taught()


def test_whole_numbers_stay_whole_levels_stay_levels_and_the_model_agrees(model):
    n_found = 0
    for x in rows(15):
        present = model.predict_one(x)
        for way in model.counterfactuals(x, n=4):
            if not way:
                continue
            n_found += 1
            assert len(way.changes) <= 3
            assert model.predict_one(way.x) == way.target != present
            assert model.predict_proba_one(way.x)[way.target] >= 0.6
            assert type(way.x["age"]) is int
            assert type(way.x["kids"]) is int
            assert way.x["job"] in JOBS
            assert {name for name in x if way.x[name] != x[name]} == set(way.changes)
    assert n_found > 15


def test_none_changes_what_it_need_not_and_the_fewest_come_first(model):
    for x in rows(8, seed=3):
        ways = [set(way.changes) for way in model.counterfactuals(x, n=10) if way]
        assert [len(way) for way in ways] == sorted(len(way) for way in ways)
        for one, other in itertools.permutations(ways, 2):
            assert not one <= other


def brute_force(model, x, probability):
    """The fewest changes, one or two, that are enough, and the least distance of them."""
    scale = dict(zip(model._tree.encoder.names, model._tree.engine.scale_factor, strict=True))
    options = {"age": range(-60, 160), "kids": range(-15, 25), "job": JOBS}
    present = model.predict_one(x)
    for size in (1, 2):
        best = math.inf
        for chosen in itertools.combinations(options, size):
            for values in itertools.product(*(options[name] for name in chosen)):
                new = x | dict(zip(chosen, values, strict=True))
                found = model.predict_proba_one(new)
                label = max(found, key=found.get)
                if label != present and found[label] >= probability:
                    square = sum(
                        1.0 if name == "job" else (2 * scale[name] * (new[name] - x[name])) ** 2
                        for name in chosen
                        if new[name] != x[name]
                    )
                    best = min(best, math.sqrt(square))
        if best < math.inf:
            return size, best
    return None


@pytest.mark.parametrize("probability", [None, 0.7])
def test_it_is_the_nearest_of_the_fewest(model, probability):
    n_checked = 0
    for x in rows(3, seed=11):
        way = model.counterfactual(
            x,
            fixed=["debt"],
            ranges={"age": (-60, 159), "kids": (-15, 24)},
            max_changes=2,
            probability=probability,
        )
        expected = brute_force(model, x, probability or 0.0)
        assert bool(way) == (expected is not None)
        if expected is not None:
            n_checked += 1
            assert way.exact
            assert (len(way.changes), way.distance) == (expected[0], pytest.approx(expected[1]))
    assert n_checked > 1


def test_a_fraction_between_two_whole_numbers_is_not_taken():
    model = DynamicModelTreeClassifier(max_nodes=1, max_bends=0)
    for i in range(400):
        model.learn_one({"rooms": i % 8}, "big" if i % 8 > 3 else "small")
    nearest = model.counterfactual({"rooms": 2})
    assert not float(nearest.x["rooms"]).is_integer()
    way = model.counterfactual({"rooms": 2}, max_changes=1)
    assert way.x == {"rooms": 4}
    assert str(way).endswith("if rooms were 4 instead of 2.")
    assert not model.counterfactual({"rooms": 2}, max_changes=1, ranges={"rooms": (2, 3)})


def test_a_margin_is_kept_with_more_labels_too():
    model = taught(n_labels=3)
    n_found = 0
    for x in rows(6):
        for way in model.counterfactuals(x, probability=0.7):
            if way:
                n_found += 1
                assert model.predict_proba_one(way.x)[way.target] >= 0.7
                assert not way.exact
    assert n_found > 3


def test_what_a_margin_misses_is_not_said_to_be_impossible():
    told = [str(taught(n_labels=3).counterfactual(x, probability=0.999999)) for x in rows(6)]
    assert all("Nothing makes it" not in one for one in told)
    none = [one for one in told if "Nothing was found that makes it" in one]
    assert any("the search for a probability is a little too strict" in one for one in none)


def test_numbers_have_few_changes_too():
    model = DynamicModelTreeRegressor(follow_target=False)
    rng = np.random.default_rng(1)
    for _ in range(800):
        rooms, area = int(rng.integers(1, 6)), float(rng.uniform(20, 120))
        model.learn_one({"rooms": rooms, "area": area}, 300 + 90 * rooms + 4 * area)
    ways = model.counterfactuals({"rooms": 2, "area": 50.0}, above=800)
    assert {frozenset(way.changes) for way in ways} == {frozenset({"rooms"}), frozenset({"area"})}
    assert all(model.predict_one(way.x) > 800 for way in ways)
    assert all(type(way.x["rooms"]) is int for way in ways)
    with pytest.raises(ValueError, match="probability is for classifiers"):
        model.counterfactual({"rooms": 2}, above=800, probability=0.6)


def test_too_few_changes_are_told(model):
    few = [
        way
        for x in rows(30, seed=5)
        for way in model.counterfactuals(
            x, n=1, max_changes=1, probability=0.9, ranges={"age": (20, 60), "debt": (3, 7)}
        )
        if "not enough" in way.reason
    ]
    assert few
    assert few[0].reason.startswith(
        "1 change is not enough within the values seen; it would be if "
    )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"max_changes": 0}, "max_changes must be a whole number, 1 or more, got 0"),
        ({"n": 1.5}, "n must be a whole number, 1 or more, got 1.5"),
        ({"probability": 60}, "probability must be between 0 and 1, such as 0.6, got 60"),
    ],
)
def test_mistakes_are_named(model, options, words):
    with pytest.raises(ValueError, match=words):
        model.counterfactuals(next(rows(1)), **options)


def test_a_search_that_is_cut_short_says_so(model, monkeypatch):
    monkeypatch.setattr(counterfactual, "MAX_SETS", 1)
    for x in rows(5):
        assert not any(way.exact and way.changes for way in model.counterfactuals(x))


def test_numbers_stay_within_what_was_seen_unless_a_range_is_given(model):
    seen = list(rows(1500, seed=1))
    ends = {
        name: (min(x[name] for x in seen), max(x[name] for x in seen)) for name in ("age", "debt")
    }
    n_found = 0
    for x in rows(15):
        for way in model.counterfactuals(x, n=4):
            for name, (low, high) in ends.items():
                assert way.x is None or low <= way.x[name] <= high
            n_found += way.exists
    assert n_found > 15
    free = [
        way.x["age"]
        for x in rows(15)
        for way in model.counterfactuals(x, n=4, ranges={"age": (None, None)})
        if way
    ]
    assert any(not 20 <= age < 60 for age in free)
    outside = model.counterfactuals({"age": 150, "kids": 1, "job": "none", "debt": 5.0})
    assert all(way.x is None or 20 <= way.x["age"] <= 150 for way in outside)
