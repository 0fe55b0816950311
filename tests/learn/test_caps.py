"""Caps are hard: no stream, however hostile, makes a model larger than its parameters say."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftree import DynamicModelTreeClassifier, FIMTDDClassifier
from driftree.learn import history as history_module
from driftree.learn._kernels import MAX_KEYS, MAX_LEVELS
from quick import examples, of_setting

pytestmark = pytest.mark.usefixtures("quick_pace")

RASH = {"epsilon": 1.0, "gain_step": 2.0}
FIMTDD = {"grace_period": 10, "delta": 0.9, "tie_threshold": 1.0, "drift_threshold": 2.0}
BUILDERS = {
    "measured": lambda p: DynamicModelTreeClassifier(**of_setting("measured", **RASH | p)),
    "paper": lambda p: DynamicModelTreeClassifier(**of_setting("paper", **RASH | p)),
    "fimtdd": lambda p: FIMTDDClassifier(
        **FIMTDD, **{name: p[name] for name in ("max_nodes", "max_depth")}
    ),
}
RULES = {
    "chessboard": lambda a, b, _: np.floor(2 * a) + np.floor(2 * b),  # never enough leaves
    "flips": lambda a, _, step: (a > 0) + step // 2,
    "alternates": lambda a, _, step: np.arange(len(a)) + step,
    "noise": lambda a, b, step: np.floor(1e9 * (a + b)) + step,
    "separable": lambda a, *_: (a > 0) * 1.0,
    "constant": lambda a, _, step: 0 * a + (step > 20),
}
limits = st.fixed_dictionaries(
    {
        "max_nodes": st.integers(1, 9),
        "max_depth": st.integers(0, 3),
        "trials": st.integers(1, 4),
        "candidates": st.integers(1, 4),
    }
)


def draw(rng, rule, step, n_rows, *, grows):
    """A step's columns and labels; whatever may be new is new, as long as it `grows`."""
    a, b = rng.uniform(-1, 1, size=(2, n_rows))
    y = RULES[rule](a, b, step) % (2 + grows * (step % 7 == 6))
    columns = {"a": a * 10.0 ** (step % 5), "b": b}
    if grows:
        levels = np.array([f"level {i}" for i in rng.integers(0, 3 + 2 * step, n_rows)], object)
        columns |= {"c": np.where(b > 0.5, None, levels), f"new {step // 8}": a + b}
    return columns, y.astype(int)


def check_caps(model, limits):
    engine = model._tree.engine
    n_nodes = int(engine.alive.sum())
    assert model.n_nodes_ == n_nodes <= limits["max_nodes"]
    assert model.depth_ <= limits["max_depth"]
    assert all(codes is None or len(codes) <= MAX_LEVELS for codes in model._tree.encoder.levels)
    nodes = np.flatnonzero(engine.alive).tolist()
    if isinstance(model, FIMTDDClassifier):
        for leaf in model._tree.leaves():
            keys = [len(engine.split_points(leaf, j)[0]) for j in range(engine.n_features)]
            assert max(keys) <= MAX_KEYS
        return
    if model.setting == "paper":
        budget = limits["candidates"] * engine.n_features
        assert all(len(engine.stored_candidates(node)) <= budget for node in nodes)
    n_models = np.count_nonzero(engine.arrays()["model.numbers.lengths"])
    if model.setting == "measured":
        running = [trial for node in nodes for trial in engine.trials(node)]
        n_bent = sum(engine.bend_trial(node).model >= 0 for node in nodes)
        n_besides = 2 * len(running) + n_bent + (engine.challenger >= 0)
        n_renewed = sum(engine.renewed(leaf).model >= 0 for leaf in model._tree.leaves())
        assert n_models == n_nodes + n_besides + n_renewed
        lengths = engine.arrays()["model.bend_feature.lengths"]
        assert lengths.max() <= model._tree.parameters.max_bends
        assert (engine.arrays()["trial.feature"] >= 0).sum() == len(running)
    else:
        assert n_models == n_nodes
    assert len(model.events_) <= history_module.MAX_EVENTS
    assert len(model._tree.history.samples) <= history_module.MAX_SAMPLES


@pytest.mark.parametrize("learner", BUILDERS)
@examples(60)
@given(
    limits=limits,
    seed=st.integers(0, 10**6),
    rule=st.sampled_from(list(RULES)),
    n_rows=st.sampled_from([1, 20, 60]),
    grows=st.booleans(),
    copied_at=st.integers(0, 79),
)
def test_caps_are_hard(learner, limits, seed, rule, n_rows, grows, copied_at):
    rng = np.random.default_rng(seed)
    model = BUILDERS[learner](limits)
    for step in range(80):
        model.learn_many(*draw(rng, rule, step, n_rows, grows=grows))
        if step == copied_at:
            model = pickle.loads(pickle.dumps(model))
        check_caps(model, limits)


@pytest.mark.parametrize("learner", BUILDERS)
def test_a_tree_at_its_cap_holds_no_more_memory_whatever_comes(learner):
    limits = {"max_nodes": 5, "max_depth": 3, "trials": 3, "candidates": 3}
    model, rng = BUILDERS[learner](limits), np.random.default_rng(1)
    rules = list(RULES)
    sizes = []
    for step in range(2000):
        model.learn_many(*draw(rng, rules[step // 10 % len(rules)], step, 20, grows=False))
        sizes.append(model._tree.engine.memory_usage())
    # which models have bends, and how many, changes with what comes
    slack = 1.3 if learner == "measured" else 1.05
    assert max(sizes[1000:]) <= slack * max(sizes[:1000])
