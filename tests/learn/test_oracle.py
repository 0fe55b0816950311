"""The kernels and the decisions equal the naive oracle, step by step, on streams that Hypothesis makes."""

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from naive import BlendModel, NaiveTree

from driftree import DynamicModelTreeClassifier
from driftree.learn import tree as tree_module
from driftree.learn.evidence import MeasuredTrials

# Small numbers, so that short streams reach every branch of the algorithm.
PACE = {"FIRST_ROWS": 15, "REFRESH_ROWS": 10, "TRIAL_ROWS": 40, "BARRED_ROWS": 60, "SIDE_ROWS": 4}


class QuickNaiveTree(NaiveTree):
    CHUNK, WARM_UP, REFRESH, TRIAL_AGE, BAR = 20, 15, 10, 40, 60
    MIN_SIDE = 4
    FLOOR_GATE = 1


@pytest.fixture(autouse=True, scope="module")
def _quick_pace():
    with pytest.MonkeyPatch.context() as patch:
        for name, rows in PACE.items():
            patch.setattr(MeasuredTrials, name, rows)
        patch.setattr(tree_module, "CHUNK_ROWS", QuickNaiveTree.CHUNK)
        patch.setattr(tree_module, "FLOOR_FACTOR", QuickNaiveTree.FLOOR_GATE)
        yield


def make_stream(seed, n_features, n_classes, *, missing, categorical, noise):
    """A stream whose concept changes twice; an exclusive or, a line, and a line elsewhere."""
    rng = np.random.default_rng(seed)
    n = 360
    X = rng.normal(size=(n, n_features)) * 10.0 ** rng.integers(-2, 3, size=n_features)
    signs = (X > 0).astype(int)
    concepts = [signs[:, 0] ^ signs[:, 1], signs[:, -1], signs[:, 0] + signs[:, 1]]
    start = rng.integers(3)
    y = np.concatenate(
        [concepts[(start + part) % 3][part * n // 3 : (part + 1) * n // 3] for part in range(3)]
    )
    flips = rng.random(n) < noise
    y = np.where(flips, rng.integers(0, n_classes, n), y) % n_classes
    if categorical:
        levels = rng.permutation(4)[np.clip((X[:, 1] / X[:, 1].std() + 2).astype(int), 0, 3)]
        _, X[:, 1] = first_seen(levels)
    if missing:
        X[rng.random(X.shape) < 0.1] = np.nan
        if categorical:
            X[:, 1] = recode(X[:, 1])
    return X, y


def first_seen(values):
    order = {}
    codes = [order.setdefault(value, len(order)) for value in values.tolist()]
    return order, np.array(codes, dtype=float)


def recode(values):
    order = {}
    return np.array(
        [v if np.isnan(v) else order.setdefault(v, len(order)) for v in values.tolist()], float
    )


def structure_of(model):
    """The tree's shape as the oracle writes it, without the models."""
    engine = model._tree.engine

    def describe(node):
        if engine.left[node] < 0:
            return "leaf"
        split = (
            int(engine.feature[node]),
            float(engine.threshold[node]),
            bool(engine.equality[node]),
            bool(engine.missing_left[node]),
        )
        return (*split, describe(int(engine.left[node])), describe(int(engine.right[node])))

    return describe(0)


def structure_of_oracle(node):
    if node.split is None:
        return "leaf"
    split = (node.split.feature, node.split.value, node.split.equality, node.split.missing_left)
    return (*split, structure_of_oracle(node.left), structure_of_oracle(node.right))


streams = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 10**6),
        "n_features": st.integers(2, 4),
        "n_classes": st.sampled_from([2, 2, 3]),
        "missing": st.booleans(),
        "categorical": st.booleans(),
        "noise": st.sampled_from([0.0, 0.1, 0.4]),
    }
)
KINDS = {"split": "Split", "replace": "Replace", "prune": "Prune", "floor": "LinkChange"}


@pytest.mark.parametrize("setting", ["measured", "paper"])
@settings(max_examples=25, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(stream=streams, batch_rows=st.sampled_from([1, 7, 20, 33, 360]), order_seed=st.integers(0, 9))
def test_tree_equals_oracle(setting, stream, batch_rows, order_seed):
    X, y = make_stream(**stream)
    categorical = (1,) if stream["categorical"] else ()
    common = {
        "epsilon": 0.05,
        "memory": 60,
        "bins": 8,
        "seed": order_seed,
        "evidence_window": 200,
        "max_nodes": 9,
        "max_depth": 3,
        "gain_step": 0.5,
        "setting": setting,
    }
    n_classes = stream["n_classes"]
    oracle = QuickNaiveTree(
        stream["n_features"], n_classes, categorical=categorical, **common
    )
    model = DynamicModelTreeClassifier(categorical=categorical, **common)
    for start in range(0, len(X), batch_rows):
        rows = slice(start, start + batch_rows)
        oracle.learn(X[rows], y[rows])
        model.partial_fit(X[rows], y[rows], classes=np.arange(n_classes))
        assert structure_of(model) == structure_of_oracle(oracle.root), f"row {start}"
    assert [type(event).__name__ for event in model.events_] == [
        KINDS[event.kind] for event in oracle.events
    ]
    for event, expected in zip(model.events_, oracle.events, strict=True):
        assert event.step == expected.step
        assert event.gain == pytest.approx(expected.gain, rel=1e-5, abs=1e-5)
        assert event.threshold == pytest.approx(expected.threshold)
    np.testing.assert_allclose(
        model.predict_proba(X), oracle.predict_proba(X), rtol=1e-4, atol=1e-6
    )
    assert BlendModel is not None
