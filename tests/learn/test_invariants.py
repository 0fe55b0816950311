"""Invariants of both settings, looked at after every step of made streams."""

import copy
import math
import pickle

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftree import DynamicModelTreeClassifier
from driftree.learn import constants
from driftree.learn.events import MemoryChange, ModelChange, Prune, Shift, Unbend
from quick import (
    N_ROWS,
    SETTINGS,
    engine_of,
    examples,
    make_stream,
    make_weights,
    moods,
    of_setting,
    split_of,
    streams,
    structure,
)

pytestmark = [
    pytest.mark.usefixtures("quick_pace"),
    pytest.mark.parametrize("setting", SETTINGS),
]

STEPS = {"measured": [1, 7, 20], "paper": [1, 7, 60]}
plain_streams = st.fixed_dictionaries(
    {"seed": st.integers(0, 10**6), "n_features": st.integers(2, 4)}
)


def make_model(setting, stream=None, **parameters):
    categorical = (1,) if (stream or {}).get("categorical") else ()
    parameters = {"categorical": categorical, **parameters}
    return DynamicModelTreeClassifier(**of_setting(setting, **parameters))


def learn(model, X, y, size, *, classes=None, weights=None):
    """Learn in batches, and stop after each of them."""
    for start in range(0, len(X), size):
        rows = slice(start, start + size)
        weight = None if weights is None else weights[rows]
        model.partial_fit(X[rows], y[rows], classes=classes, sample_weight=weight)
        yield rows


def learn_all(model, X, y, size=20, **options):
    for _ in learn(model, X, y, size, **options):
        pass
    return model


def same_state(one, other):
    """Whether two learners hold the same bits."""
    arrays, others = engine_of(one).arrays(), engine_of(other).arrays()
    return (
        arrays.keys() == others.keys()
        and all(np.array_equal(arrays[k], others[k], equal_nan=True) for k in arrays)
        and one.events_ == other.events_
    )


def subtree(engine, node=0):
    """The nodes below and including a node, parents first."""
    found = [node]
    for parent in found:
        if engine.left[parent] >= 0:
            found += [int(engine.left[parent]), int(engine.right[parent])]
    return found


def reached(engine, X):
    """The rows that reach each node."""
    found = {}
    for i, leaf in enumerate(engine.leaves(X)):
        node = int(leaf)
        while node >= 0:
            found.setdefault(node, []).append(i)
            node = int(engine.parent[node])
    return found


# ---------------------------------------------------------------------- after every step
def check_partition(before, engine, weight):
    """The root sees every row once; what a node sees is what its children see together."""
    n_before = len(before["rows"])
    rows = engine.rows - np.pad(before["rows"], (0, len(engine.rows) - n_before))
    alive = [
        n
        for n in subtree(engine)
        if n < n_before and before["alive"][n] and before["born"][n] == engine.born[n]
    ]
    if engine.born[0] == before["born"][0]:
        assert rows[0] == weight
    for node in alive:
        children = [int(engine.left[node]), int(engine.right[node])]
        if children[0] >= 0 and all(child in alive for child in children):
            assert rows[node] == rows[children].sum()


def n_bends(engine, node):
    return len(engine.bends(int(engine.model[node])))


def model_thresholds(model, engine, event):
    """What more bends must prove, as inputs, and a memory as one.

    A curve may have had some of its pieces before; each beyond the usual number has a price. Fewer
    bends must prove a quarter of it, or may lose as much.
    """
    c = constants.MEASURED
    is_memory = isinstance(event, MemoryChange)
    n_pieces = 1 if is_memory else sum(len(curve.knots) - 1 for curve in event.curves)

    def level(n):
        margin = -math.log(model._tree.parameters.epsilon)
        return margin + 0.1 * n * max(1, engine.n_classes - 1)

    if isinstance(event, Unbend):
        return level(n_pieces) / 4, -level(n_pieces) / 4
    n_fine = 0 if is_memory else n_pieces - c.curve_pieces * len(event.curves)
    prices = [c.split_price * n * event.rows for n in range(max(0, n_fine) + 1)]
    return [level(n) + price for n in range(1, n_pieces + 1) for price in prices]


def thresholds(model, engine, node):
    """What the gains (3), (4) and (5) must reach, from the paper's (11) or the specification."""
    margin = -math.log(model._tree.parameters.epsilon)
    k = (engine.n_columns + n_bends(engine, node)) * max(1, engine.n_classes - 1)
    if model.setting == "measured":
        tau = margin + 0.1 * k
        return tau, tau, -tau / 4
    leaves = (len(subtree(engine, node)) + 1) // 2
    return k + margin, k * (2 - leaves) + margin, k * (1 - leaves) + margin


def check_property_2(model, engine, visited):
    """No inner node that was visited would be better off as a leaf."""
    for node in visited:
        if engine.left[node] >= 0:
            _, replace, prune = thresholds(model, engine, node)
            own = engine.node(node)
            assert own.prune_level == pytest.approx(prune)
            assert own.replace_level == pytest.approx(replace)
            rest = constants.MEASURED.rest_factor * replace
            assert own.rest_level == pytest.approx(
                rest if model.setting == "measured" else math.inf
            )
            assert engine.subtree_loss[node] - engine.own_loss[node] < prune
            if model.setting == "paper":
                leaves = [n for n in subtree(engine, node) if engine.left[n] < 0]
                assert engine.subtree_loss[node] == pytest.approx(engine.own_loss[leaves].sum())


def check_grid(engine, node):
    """Every feature's slots hold the same rows: the same count, the same gradient."""
    if not hasattr(engine, "grid_is_ready") or not engine.grid_is_ready(node):
        return
    first_slots, counts, gradients = engine.grid_sums(node)
    assert (counts >= 0).all()
    per_feature = np.add.reduceat(counts, first_slots[:-1])
    np.testing.assert_allclose(per_feature, per_feature[0], rtol=1e-9)
    assert per_feature[0] <= engine.rows[node] * (1 + 1e-9)
    sums = np.add.reduceat(gradients, first_slots[:-1])
    np.testing.assert_allclose(sums, np.broadcast_to(sums[0], sums.shape), rtol=1e-3, atol=1e-3)
    for score, *_, share in engine.proposals(node):
        assert score >= 0
        assert 0 < share < 1


def check_size(model, engine):
    nodes = subtree(engine)
    n_leaves = (len(nodes) + 1) // 2
    c, p = engine.n_classes, engine.n_columns
    assert len(nodes) == model.n_nodes_ == int(engine.alive.sum()) <= model.max_nodes
    assert n_leaves == model.n_leaves_
    assert max(engine.depth[nodes]) == model.depth_ <= model.max_depth
    assert model.n_splits_ == n_leaves - 1
    assert model.n_paper_splits_ == n_leaves - 1 + n_leaves * (c if c > 2 else 1)
    bends = sum(n_bends(engine, node) for node in nodes if engine.left[node] < 0)
    n_inputs = n_leaves * (p - 1) + bends
    assert model.n_parameters_ == n_leaves - 1 + n_inputs * max(1, c - 1)
    assert model.memory_usage() > 0


def check_events(model, engine, events):
    """Property 1: nothing changes that does not reach its threshold."""
    for event in events:
        assert event.gain >= event.threshold
        assert event.gain == pytest.approx(event.loss_before - event.loss_after)
        if isinstance(event, ModelChange):
            levels = model_thresholds(model, engine, event)
            assert any(event.threshold == pytest.approx(level) for level in levels)
        elif isinstance(event, Shift):  # one more parameter
            margin = -math.log(model._tree.parameters.epsilon)
            assert event.threshold == pytest.approx(margin + 0.1)
        elif len(events) == 1 and model.setting == "measured" and event.kind != "link":
            split, _, prune = thresholds(model, engine, event.node)
            assert event.threshold == pytest.approx(prune if isinstance(event, Prune) else split)


def check_probabilities(proba):
    assert ((proba >= 0) & (proba <= 1)).all()
    np.testing.assert_allclose(proba.sum(axis=1), 1)


@examples(20)
@given(stream=streams, mood=moods, size=st.integers(0, 2), weighted=st.booleans())
def test_invariants_hold_after_every_step(setting, stream, mood, size, weighted):
    X, y = make_stream(**stream)
    weights = make_weights(stream["seed"], N_ROWS) if weighted else np.ones(N_ROWS)
    model = make_model(setting, stream, **mood)
    steps = learn(
        model, X, y, STEPS[setting][size], classes=range(stream["n_classes"]), weights=weights
    )
    before, n_events = None, 0
    for rows in steps:
        engine = engine_of(model)
        if before is not None:
            check_partition(before, engine, weights[rows].sum())
        visited = reached(engine, model._encoded(X[rows]).matrix)
        check_property_2(model, engine, visited)
        for node in visited:
            check_grid(engine, node)
        check_size(model, engine)
        check_events(model, engine, model.events_[n_events:])
        check_probabilities(model.predict_proba(X[::40]))
        before = {name: getattr(engine, name).copy() for name in ("rows", "alive", "born")}
        n_events = len(model.events_)
    assert model.n_rows_seen_ == N_ROWS


# ---------------------------------------------------------------------- what must not matter
@examples(5)
@given(stream=streams)
def test_same_seed_same_tree(setting, stream):
    X, y = make_stream(**stream)
    one, other = (learn_all(make_model(setting, stream), X, y) for _ in range(2))
    assert same_state(one, other)


@examples(5)
@given(stream=streams)
def test_an_empty_batch_changes_nothing(setting, stream):
    X, y = make_stream(**stream)
    model = learn_all(make_model(setting, stream), X, y)
    before = copy.deepcopy(model)
    model.partial_fit(X[:0], y[:0])
    model.partial_fit(X[:3], y[:3], sample_weight=np.zeros(3))
    names = [f"x{j}" for j in range(X.shape[1])]
    model.learn_many(pd.DataFrame(X[:0], columns=names), [])
    model.learn_one(dict(zip(names, X[0].tolist(), strict=True)), int(y[0]), w=0)
    assert same_state(before, model)


@examples(10)
@given(stream=plain_streams, missing=st.booleans(), size=st.sampled_from([20, 60]))
def test_order_within_a_step_does_not_matter(setting, stream, missing, size):
    X, y = make_stream(**stream, n_classes=2, missing=missing)
    w = make_weights(0, N_ROWS)
    rng = np.random.default_rng(0)
    X[:, 0] = rng.normal(size=N_ROWS)  # no two rows are the same: those keep their order
    order = np.concatenate([start + rng.permutation(20) for start in range(0, N_ROWS, 20)])
    one = learn_all(make_model(setting), X, y, size, weights=w)
    other = learn_all(make_model(setting), X[order], y[order], size, weights=w[order])
    assert same_state(one, other)


@examples(10)
@given(stream=streams, rotation=st.integers(1, 2))
def test_other_labels_give_the_same_tree(setting, stream, rotation):
    X, y = make_stream(**stream)
    c = stream["n_classes"]
    one = learn_all(make_model(setting, stream), X, y, classes=range(c))
    names = np.array(["a", "b", "c"])[:c]
    other = learn_all(make_model(setting, stream), X, names[(y + rotation) % c], classes=names)
    assert structure(engine_of(one)) == structure(engine_of(other))
    proba = np.roll(one.predict_proba(X), rotation, axis=1)
    np.testing.assert_allclose(other.predict_proba(X), proba, rtol=1e-6, atol=1e-9)


@examples(10)
@given(stream=plain_streams, n_classes=st.sampled_from([2, 3]), missing=st.booleans())
def test_permuted_features_give_the_permuted_tree(setting, stream, n_classes, missing):
    X, y = make_stream(**stream, n_classes=n_classes, missing=missing)
    order = np.random.default_rng(stream["seed"]).permutation(X.shape[1])
    # Stores of the paper that are full drop one of two equal candidates, the later feature.
    one, other = (make_model(setting, candidates=200) for _ in range(2))
    learn_all(one, X, y)
    learn_all(other, X[:, order], y)

    def renamed(tree):
        if tree == "leaf":
            return tree
        (feature, *rest), left, right = tree
        return (order[feature], *rest), renamed(left), renamed(right)

    assert renamed(structure(engine_of(other))) == structure(engine_of(one))
    proba = one.predict_proba(X)
    np.testing.assert_allclose(other.predict_proba(X[:, order]), proba, rtol=1e-6, atol=1e-9)


AS_GIVEN = {
    "lists": lambda X, y: (X.tolist(), y.tolist()),
    "columns first": lambda X, y: (np.asfortranarray(X), y),
    "other integers": lambda X, y: (X, y.astype(np.int16)),
    "every second row": lambda X, y: (np.repeat(X, 2, axis=0)[::2], np.repeat(y, 2)[::2]),
}


@pytest.mark.parametrize("kind", AS_GIVEN)
def test_arrays_give_the_same_bits_however_they_lie(setting, kind):
    X, y = make_stream(seed=4, n_features=3, n_classes=3)
    one, other = (make_model(setting) for _ in range(2))
    for rows in learn(one, X, y, 20):
        other.partial_fit(*AS_GIVEN[kind](X[rows], y[rows]))
    assert same_state(one, other)
    predicted = other.predict(AS_GIVEN[kind](X, y)[0])
    assert predicted.tolist() == one.predict(X).tolist()
    assert predicted.tolist() == one.classes_[one.predict_proba(X).argmax(axis=1)].tolist()


def test_a_wrong_batch_is_refused_also_when_all_is_known(setting):
    X, y = make_stream(seed=4, n_features=3, n_classes=2)
    model = learn_all(make_model(setting), X, y)
    before = copy.deepcopy(model)
    infinite = np.where(np.arange(X.size).reshape(X.shape) == 4, np.inf, X)
    for wrong in [(infinite, y), (X[:, :2], y), (X, y[1:])]:
        with pytest.raises(ValueError, match=r"column 'x1', row 1|features|labels"):
            model.partial_fit(*wrong)
    with pytest.raises(ValueError, match="column 'x1', row 1"):
        model.predict(infinite)
    assert same_state(before, model)


@examples(5)
@given(stream=streams)
def test_columns_are_known_by_name(setting, stream):
    """Whatever the order of a frame's columns: the same bits."""
    X, y = make_stream(**stream)
    frame = to_frame(X, categorical=stream["categorical"])
    rng = np.random.default_rng(stream["seed"])
    one, other = (make_model(setting) for _ in range(2))
    for start in range(0, N_ROWS, 20):
        rows = slice(start, start + 20)
        one.learn_many(frame[rows], y[rows].tolist())
        columns = frame.columns if start == 0 else rng.permutation(frame.columns)
        other.learn_many(frame[rows][columns], y[rows].tolist())
    assert same_state(one, other)
    shuffled = other.predict_proba_many(frame[frame.columns[::-1]])
    pd.testing.assert_frame_equal(one.predict_proba_many(frame), shuffled)


def to_frame(X, *, categorical):
    frame = pd.DataFrame(X, columns=[f"f{j}" for j in range(X.shape[1])])
    if categorical:
        levels = {0: "red", 1: "green", 2: "blue", 3: "grey"}
        frame["f1"] = frame["f1"].map(levels).astype(object).where(frame["f1"].notna(), None)
    return frame


@examples(4)
@given(stream=streams)
def test_one_row_is_one_row_through_every_door(setting, stream):
    """`learn_one`, `learn_many` and `partial_fit` agree, bit for bit."""
    X, y = make_stream(**stream)
    first = np.flatnonzero(~np.isnan(X).any(axis=1))[0]  # a dict's missing value has no type yet
    X, y = np.roll(X, -first, axis=0), np.roll(y, -first)
    frame = to_frame(X, categorical=stream["categorical"])
    one, many, partial = (make_model(setting) for _ in range(3))
    for i in range(N_ROWS):
        row = frame.iloc[i : i + 1]
        values = row.to_dict("records")[0]
        one.learn_one(values, int(y[i]))
        many.learn_many(row, [int(y[i])])
        partial.partial_fit(row, y[i : i + 1])
        if i % 30 == 0:
            proba = one.predict_proba_one(values)
            assert list(proba.values()) == partial.predict_proba(row)[0].tolist()
            assert one.predict_one(values) == partial.predict(row)[0] == many.predict_many(row)[i]
    assert same_state(one, many)
    assert same_state(one, partial)


# ---------------------------------------------------------------------- weights
@examples(5)
@given(stream=streams, size=st.sampled_from([1, 5, 20]))
def test_weights_are_rows(setting, stream, size):
    """Weight 2 is the row twice, weight 0 is no row."""
    X, y = make_stream(**stream)
    times = np.random.default_rng(stream["seed"]).integers(0, 3, N_ROWS)
    times[:size] = np.maximum(times[:size], 1)
    weighted, repeated = (make_model(setting, stream) for _ in range(2))
    for start in range(0, N_ROWS, size):
        rows = slice(start, start + size)
        weighted.partial_fit(X[rows], y[rows], sample_weight=times[rows].astype(float))
        again = np.repeat(np.arange(start, start + len(X[rows])), times[rows])
        repeated.partial_fit(X[again], y[again])
    assert same_state(weighted, repeated)


def test_a_row_of_weight_zero_leaves_no_trace(setting):
    """Not even its label, its level or its missing value."""
    X, y = make_stream(seed=1, n_features=3, n_classes=2, categorical=True)
    frame, labels = to_frame(X, categorical=True), y.tolist()
    weights = np.ones(N_ROWS)
    weights[[3, 40, 41]] = 0
    frame.loc[3, "f0"] = np.nan
    frame.loc[40, "f1"] = "mauve"
    labels[41] = "never"
    kept = weights > 0
    with_zeros, without = (make_model(setting) for _ in range(2))
    with_zeros.learn_many(frame, labels, weights)
    without.learn_many(
        frame[kept], [label for label, keep in zip(labels, kept, strict=True) if keep]
    )
    assert same_state(with_zeros, without)
    assert with_zeros.classes_.tolist() == [0, 1] or with_zeros.classes_.tolist() == [1, 0]


@pytest.mark.parametrize("weight", [1e-300, 1e-3, 8.5, 100])
def test_weights_of_any_size_are_safe(setting, weight):
    X, y = make_stream(seed=2, n_features=3, n_classes=2, noise=0.1)
    model = learn_all(make_model(setting), X, y, weights=np.full(N_ROWS, weight))
    check_probabilities(model.predict_proba(X))
    learn_all(model, X, y)
    check_probabilities(model.predict_proba(X))


def test_heavy_weights_do_no_harm(setting):
    """Survey weights are in the thousands: the model must keep its numbers, and its wits."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(4000, 3))
    y = X[:, 0] + rng.normal(size=4000) / 2 > 0
    for weight in (1e3, 1e4, 1e6, 1e15):
        model = DynamicModelTreeClassifier(setting=setting)
        model.partial_fit(X[:3000], y[:3000], sample_weight=np.full(3000, weight))
        check_probabilities(model.predict_proba(X))
        assert model.score(X[3000:], y[3000:]) > 0.75, weight


# ---------------------------------------------------------------------- copies
@examples(8)
@given(stream=streams)
def test_copies_go_on_as_the_original(setting, stream):
    X, y = make_stream(**stream)
    model = make_model(setting, stream)
    learn_all(model, X[:200], y[:200])
    copies = [copy.deepcopy(model), pickle.loads(pickle.dumps(model))]
    for one in (model, *copies):
        learn_all(one, X[200:], y[200:])
    assert all(same_state(model, one) for one in copies)


# ---------------------------------------------------------------------- what comes and goes
@examples(5)
@given(seed=st.integers(0, 10**6))
def test_features_levels_and_labels_may_come_and_go(setting, seed):
    rng = np.random.default_rng(seed)
    model = make_model(setting)
    for i in range(400):
        n_known = 2 + i // 80
        x = {f"f{j}": rng.normal() for j in range(n_known) if rng.random() < 0.8}
        x["color"] = rng.choice(["red", "green", "blue", "grey"][: 1 + i // 100])
        y = ["no", "yes", "maybe"][(x.get("f0", 0) > 0) + (i > 250 and x.get("f3", 0) > 1)]
        model.learn_one(x, y)
        proba = model.predict_proba_one(x)
        assert set(proba) == set(model.classes_)
        check_probabilities(np.array([list(proba.values())]))
        engine = engine_of(model)
        check_size(model, engine)
        for node in subtree(engine):
            assert split_of(engine, node) is None or engine.parent[engine.left[node]] == node


@pytest.mark.parametrize("value", [1e100, 1e160, -1e300, 1.7e308])
def test_outliers_are_safe(setting, value):
    """One absurd value (a sentinel, a broken sensor) must not cost the model its numbers."""
    X, y = make_stream(seed=4, n_features=3, n_classes=2)
    X[100, 0], X[150, 0] = value, -value
    model = learn_all(make_model(setting), X, y)
    check_probabilities(model.predict_proba(X))
    check_probabilities(model.predict_proba([[value, value, -value], [-value, value, value]]))


def overdue(model):
    """Trials of leaves that have proved their worth, and are not splits yet."""
    engine = engine_of(model)
    for leaf in model._tree.leaves():
        for trial in engine.trials(leaf) if model.setting == "measured" else ():
            is_ready = min(trial.n_left, trial.n_right) >= constants.MEASURED.side_rows
            if is_ready and trial.node_loss - trial.trial_loss >= engine.node(leaf).split_level:
                yield trial


def test_a_new_feature_does_not_put_off_a_split(setting):
    """Grids start again when a feature comes; trials that are under way go on and count."""
    rng = np.random.default_rng(6)
    model = make_model(setting)
    for i in range(200):
        n_features = 2 + max(0, i - 40) // 10  # ten rows are too few for a grid
        x = {f"x{j}": value for j, value in enumerate(rng.uniform(-1, 1, n_features))}
        model.learn_one(x, bool((x["x0"] > 0) ^ (x["x1"] > 0)))
        assert not list(overdue(model))
    assert model.events_ or setting == "paper"  # which has no trials
