"""The kernels and the decisions equal the naive oracle, step by step, on made streams."""

import math
from dataclasses import replace
from itertools import cycle, islice, pairwise

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from driftree.learn import constants
from driftree.learn.events import LinkChange
from quick import (
    N_ROWS,
    SETTINGS,
    columns_in_order,
    engine_of,
    examples,
    make_pair,
    make_stream,
    make_weights,
    moods,
    node_pairs,
    streams,
)

pytestmark = pytest.mark.usefixtures("quick_pace")

KINDS = {
    "split": "Split",
    "replace": "Replace",
    "prune": "Prune",
    "floor": "LinkChange",
    "bend": "Bend",
    "unbend": "Unbend",
    "memory": "MemoryChange",
    "shift": "Shift",
}


def near(actual, expected, *, rel=1e-6, abs=1e-6):
    np.testing.assert_allclose(actual, expected, rtol=rel, atol=abs)


def check_events(events, expected, *, measured):
    """Property 1: what the oracle finds worth changing, and nothing else, with its figures."""
    assert [type(event).__name__ for event in events] == [KINDS[e.kind] for e in expected]
    for event, twin in zip(events, expected, strict=True):
        assert event.gain >= event.threshold
        assert event.step == twin.step
        assert len(event.path) == len(twin.path)
        near(event.gain, twin.gain)
        near(event.threshold, twin.threshold)
        near(event.rows, twin.rows)
        assert event.n_removed == twin.n_removed
        assert (event.runner_up is None) == (twin.second is None)
        if event.runner_up is not None:
            near(event.runner_up.gain, twin.second)
        if measured and twin.kind != "floor":
            near(event.loss_before, twin.loss_before)
            near(event.loss_after, twin.loss_after)


def inputs_in_order(engine, oracle, model, twin):
    """The engine's inputs of a model in the order of the oracle's: its bends are the last."""
    assert engine.bends(model) == twin.bends
    bends = engine.n_columns + np.arange(len(twin.bends))
    return np.array([*columns_in_order(engine, oracle), *bends])


def check_bends(engine, oracle, node, twin):
    """The trial of other bends, and the scores of those to come."""
    trial = engine.bend_trial(node)
    assert (trial.model < 0) == (twin.bend is None)
    assert (trial.next_at, trial.n_failed) == (twin.next_bend, twin.n_failed)
    if twin.bend:
        model = twin.bend.model
        inputs = inputs_in_order(engine, oracle, trial.model, model)
        near(engine.curvature_inverse(trial.model)[np.ix_(inputs, inputs)], model.A)
        near([trial.node_loss, trial.trial_loss], [twin.bend.node_loss, twin.bend.loss])
        assert trial.born == twin.bend.born
        near(trial.evidence, twin.bend.evidence)
    near(engine.bend_worth(int(engine.model[node])), twin.model.worth(), rel=1e-5)
    if twin.grid:
        scores = {j: [] for j, scale in oracle.scales.items() if not scale.only_bits}
        for score, j in zip(*engine.bend_scores(node), strict=True):
            scores[j].append(score)
        for j, found in scores.items():
            if len(twin.grid[j].edges) >= 2:
                near(found[::-1], list(oracle.bend_scores(twin, j)), rel=1e-3, abs=1e-3)


def check_measured(engine, oracle, node, twin):
    """A node's sums, trials and grid (gradients in single precision)."""
    near(engine.own_loss[node], twin.own_loss)
    near(engine.subtree_loss[node], twin.subtree_loss)
    near(engine.evidence[node], twin.evidence)
    columns = columns_in_order(engine, oracle)
    inputs = inputs_in_order(engine, oracle, int(engine.model[node]), twin.model)
    near(engine.curvature_inverse(engine.model[node])[np.ix_(inputs, inputs)], twin.model.A)
    check_bends(engine, oracle, node, twin)
    renewed = engine.renewed(node)
    assert (renewed.model < 0) == (twin.renewed is None)
    if twin.renewed:
        assert renewed.born == twin.renewed.born
        near([renewed.lead, renewed.harm], [twin.renewed.lead, twin.renewed.harm])
    best, _ = oracle.shift(twin) if twin.split else (None, None)
    if best is not None:
        border = engine.border(node)
        near([border.gain, border.loss, border.rows], best[:3])
        assert border.gain == 0 or border.threshold == pytest.approx(best[3], rel=1e-9, abs=1e-12)
    if twin.model.rho is not None:
        near(engine.floor(engine.model[node]), twin.model.rho)

    trials = {trial.condition[0]: trial for trial in engine.trials(node)}
    assert trials.keys() == {trial.split.feature for trial in twin.trials}
    for trial in twin.trials:
        t = trials[trial.split.feature]
        assert t.condition[1] == trial.split.value
        assert t.condition[3] == trial.split.missing_left
        assert [t.n_left, t.n_right] == trial.n
        near(t.evidence, trial.evidence)
        near(t.node_loss - t.trial_loss, trial.gain)
        near(t.subtree_loss - t.trial_loss, trial.replacement_gain)

    assert engine.grid_is_ready(node) == bool(twin.grid)
    if twin.grid:
        slots, counts, gradients = engine.grid_sums(node)
        near(counts, np.concatenate([grid.count for grid in twin.grid]))
        expected = np.concatenate([grid.gradient for grid in twin.grid])
        near(gradients[:, :, columns], expected, rel=1e-4, abs=1e-4)
        assert np.diff(slots).tolist() == [len(grid.count) for grid in twin.grid]


def check_paper(engine, oracle, node, twin):
    """A node's life sums and its stored candidates."""
    near(engine.own_loss[node], twin.loss)
    leaves = [below.loss for below in twin.nodes() if below.split is None]
    near(engine.subtree_loss[node], math.fsum(leaves))
    stored = {(j, value): rest for _, j, value, *rest in engine.stored_candidates(node)}
    gains = {(j, value): gain for gain, j, value, *_ in engine.stored_candidates(node)}
    assert stored.keys() == twin.store.keys()
    for key, window in twin.store.items():
        near(gains[key], window.gains(oracle.gain_step).sum())
        near(stored[key], [*window.n, window.loss.sum()])


def check_nodes(model, oracle):
    engine = engine_of(model)
    for node, twin in node_pairs(engine, oracle):
        assert engine.rows[node] == twin.rows
        inputs = inputs_in_order(engine, oracle, int(engine.model[node]), twin.model)
        near(engine.weights(node)[:, inputs], twin.W)
        check = check_measured if oracle.measured else check_paper
        check(engine, oracle, node, twin)
    if oracle.challenger:
        near(engine.challenger_gain, oracle.floor_gain)
        near(engine.challenger_rows, oracle.challenger_rows)


@pytest.mark.parametrize("setting", SETTINGS)
@examples(20)
@given(
    stream=streams,
    mood=moods,
    batches=st.sampled_from([[1], [1] * 10 + [3], [7], [20], [33], [N_ROWS]]),
    order_seed=st.integers(0, 9),
    weighted=st.booleans(),
    max_bends=st.sampled_from([0, 3, 8]),
    trials_rest=st.booleans(),
    costly_columns=st.sampled_from([1, 128]),
    block_rows=st.sampled_from([1, 8]),
    looks=st.booleans(),
)
def test_tree_equals_oracle(
    setting, stream, mood, order_seed, max_bends, trials_rest, costly_columns, block_rows, **how
):
    model, oracle = make_pair(setting, stream, seed=order_seed, max_bends=max_bends, **mood)
    oracle.trials_rest = trials_rest and max_bends > 0
    oracle.costly_columns = costly_columns if max_bends > 0 else math.inf
    oracle.block_rows = block_rows if setting == "measured" and max_bends > 0 else 1
    with pytest.MonkeyPatch.context() as patch:
        bent = replace(
            constants.MEASURED,
            trials_rest=trials_rest,
            costly_columns=costly_columns,
            block_rows=block_rows,
            wait_bytes=0,
        )
        patch.setattr(constants, "MEASURED", bent)
        check_course(model, oracle, stream, **how)


def check_course(model, oracle, stream, batches, weighted, looks):
    """Both learn the stream, in batches of so many rows in turn, and are the same after each.

    Who looks at a tree makes rows that wait be learnt: unless ``looks``, only the end is compared.
    """
    X, y = make_stream(**stream)
    weights = make_weights(stream["seed"], N_ROWS) if weighted else np.ones(N_ROWS)
    classes = np.arange(stream["n_classes"])
    ends = np.cumsum(list(islice(cycle(batches), N_ROWS)))
    n_events = 0
    for start, end in pairwise([0, *ends[: np.searchsorted(ends, N_ROWS) + 1]]):
        rows = slice(start, min(end, N_ROWS))
        oracle.learn(X[rows], y[rows], weights[rows])
        model.partial_fit(X[rows], y[rows], classes=classes, sample_weight=weights[rows])
        assume(not oracle.too_close)
        if not looks and end < N_ROWS:
            continue
        new = model.events_[n_events:], oracle.events[n_events:]
        check_events(*new, measured=oracle.measured)
        if len(oracle.events) > n_events or rows.stop >= N_ROWS:
            check_nodes(model, oracle)
        n_events = len(oracle.events)
    near(model.predict_proba(X), oracle.predict_proba(X))


def test_a_link_change_quotes_the_losses_that_were_compared():
    stream = {"seed": 90, "n_features": 2, "n_classes": 2, "missing": False, "categorical": False}
    X, y = make_stream(**stream)
    model, oracle = make_pair("measured", stream)
    oracle.learn(X, y)
    model.partial_fit(X, y)
    changes = [event for event in model.events_ if isinstance(event, LinkChange)]
    expected = [event for event in oracle.events if event.kind == "floor"]
    assert len(changes) == len(expected) > 0
    for event, twin in zip(changes, expected, strict=True):
        for figure in ("loss_before", "loss_after", "gain", "threshold", "rows"):
            near(getattr(event, figure), getattr(twin, figure))
