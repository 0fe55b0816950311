"""Every array of a model file, with what guards it: numbers there cannot lead a kernel astray.

A file is signed, but anyone can sign one. What the kernels follow or rely on is looked at when a
model is loaded; the table says by what property, and a new array without a row fails the test.
"""

import functools
import json

import numpy as np
import pytest

import stored
from driftree import ModelFileError
from driftree.learn.storage import container, models

MODELS = {
    "measured": lambda: learnt("measured", 1630),
    "young": lambda: learnt("measured", 80),  # rows that wait to choose a grid
    "three labels": lambda: learnt("measured", 900, n_labels=3),
    "paper": lambda: learnt("paper", 1630),
    "FIMT-DD": lambda: learnt("FIMT-DD", 1630),
    "sparse": lambda: sparse(1630),
    "in a block": lambda: in_a_block(1630),
}

# What must hold of an array; `BROKEN` breaks it, and every file in which it is broken is refused.
GUARDS = {
    "label_reach": "reach",
    "block_is_open": "flags",
    "block_spares": "flags",
    "block_challenger_rests": "flags",
    "sums.block_rests": "count",
    "sums.border_width": "bounded",
    "sums.border_clock": "bounded",
    "sums.border_sums": "finite",
    "is_categorical": "flags",
    "node.equality": "flags",
    "node.missing_left": "flags",
    "node.is_alive": "flags",
    "scale_is_indicator": "flags",
    "value_column": "index",
    "missing_column": "index",
    "level_column": "index",
    "node.parent": "index",
    "node.left": "index",
    "node.right": "index",
    "node.feature": "index",
    "node.depth": "index",
    "node.model": "index",
    "challenger": "index",
    "trial.feature": "index",
    "trial.slot": "index",
    "trial.left_model": "index",
    "trial.right_model": "index",
    "grid.first_slot": "index",
    "grid.implied": "index",
    "candidates.feature": "index",
    "place": "index",
    "split_points.root": "index",
    "n_classes": "count",
    "n_seen": "count",
    "n_rows": "count",
    "n_steps": "count",
    "stride": "count",
    "grid.n_first_rows": "count",
    "split_points.n_classes": "count",
    "split_points.n_keys": "count",
    "bend_trial.model": "index",
    "bend_trial.n_failed": "count",
    "model.renewed_model": "index",
    "model.renewed_lead": "bounded",
    "model.renewed_born": "bounded",
    "model.renewed_harm": "bounded",
    "model.bend_feature": "index",
    "model.bend_low": "finite",
    "model.bend_high": "finite",
    "trial.equality": "flags",
    "trial.missing_left": "flags",
    "grid.edges": "edges",
    "grid.first_rows": "rows",
    "candidates.value": "finite",
    "node.threshold": "threshold",
    "trial.threshold": "threshold",
    "split_points.keys": "keys",
    "model.numbers": "padded",
    "node_gradient.sum": "padded",
    "grid.gradients": "padded",
    "grid.total": "padded",
    "candidates.gradient_left": "padded",
    "candidates.gradient_before": "padded",
    "grid.scale": "bounded",
    "model.floor_0": "bounded",
    "model.floor_1": "bounded",
    "model.has_floor": "bounded",
    "model.floor_rows": "bounded",
    "model.preference": "bounded",
    "model.scale": "bounded",
    "model.trace": "bounded",
    "model.wrong": "bounded",
    "model.memory": "bounded",
    "model.sureness": "bounded",
    "model.sureness_rows": "bounded",
    "bend_trial.node_loss": "bounded",
    "bend_trial.loss": "bounded",
    "bend_trial.evidence": "bounded",
    "bend_trial.born": "bounded",
    "bend_trial.next_at": "bounded",
    "node.rows": "bounded",
    "sums.clock": "bounded",
    "sums.own_loss": "bounded",
    "sums.subtree_loss": "bounded",
    "sums.born": "bounded",
    "sums.refresh_at": "bounded",
    "sums.evidence": "bounded",
    "sums.recent": "bounded",
    "trial.node_loss": "bounded",
    "trial.subtree_loss": "bounded",
    "trial.loss": "bounded",
    "trial.n_left": "bounded",
    "trial.n_right": "bounded",
    "trial.born": "bounded",
    "trial.evidence": "bounded",
    "grid.counts": "bounded",
    "grid.barred_until": "bounded",
    "candidates.n_left": "bounded",
    "candidates.loss_left": "bounded",
    "candidates.n_before": "bounded",
    "candidates.loss_before": "bounded",
    "candidates.gain": "bounded",
    "sums.class_rows": "bounded",
    "challenger_loss": "bounded",
    "challenger_clock": "bounded",
    "challenger_rows": "bounded",
    "rival_loss": "bounded",
    "tree_loss": "bounded",
    "tree_rows": "bounded",
    "recent_loss": "bounded",
    "recent_rows": "bounded",
    "restless_until": "bounded",
    "clock": "bounded",
    "split_points.counts": "bounded",
    "split_points.present": "bounded",
    "sums.tried_at": "bounded",
    "sums.error_mean": "bounded",
    "sums.error_sum": "bounded",
    "sums.least_sum": "bounded",
    "sparse_weight": "bounded",
    "sparse_mean": "bounded",
    "sparse_squares": "bounded",
    "sparse_energy": "bounded",
    "sparse_energy_of_all": "bounded",
    "sparse_feature": "index",
    "sparse_is_centred": "flags",
    "sparse_n_given_up": "count",
    "model.sparse_ids": "index",
    "model.sparse_numbers": "bounded",
    "model.sparse_scale": "bounded",
    "model.sparse_loosening": "bounded",
    "names.sparse": "text",
    "watch_rows": "finite or NaN",
    "watch_targets": "index",
    "watch_losses": "bounded",
    "watch_came": "bounded",
    "watch_bets": "bounded",
    "watch_rise": "bounded",
    "watch_n_checks": "count",
    "watch_next_check": "count",
    "watch_next_kept": "count",
    "watch_since": "count",
    # Any number scales rows to something finite, or to what the kernels take for missing.
    "scale_weight": "any number",
    "scale_mean": "any number",
    "scale_squares": "any number",
    "scale_low": "any number",
    "scale_high": "any number",
    "scale_shift": "any number",
    "scale_factor": "any number",
}


def learnt(kind, n_rows, n_labels=2):
    """A model in mid-stream whose columns do not fill whole vectors."""
    model = stored.MAKERS[kind](max_nodes=7)
    columns, y = stored.draw(n_rows, n_labels=n_labels)
    stored.learn_rows(model, columns | {"more": columns["a"] ** 2}, y)
    return model


def in_a_block(n_rows):
    """A model of which nothing is decided until the block is full that its rows are learnt in."""
    with pytest.MonkeyPatch.context() as patch:
        stored.let_wait(patch)
        return learnt("measured", n_rows)


def sparse(n_rows):
    """A model of words, some of which may be split upon; one has a column."""
    model = stored.MAKERS["measured"](max_nodes=7, absent="zero", max_features=60)
    rng = np.random.default_rng(1)
    for i in range(n_rows):
        words = {f"w{int(80 * place**2)}": 1 for place in rng.random(5)}
        model.learn_one(words | {"age": 30 + rng.normal()}, int("w3" in words) ^ i % 2)
    return model


@functools.cache
def parts(name):
    return container.from_bytes(stored.to_bytes(MODELS[name]()), models.KIND)


def load(name, array_name, array):
    contents, arrays = parts(name)
    arrays = dict(arrays) | {array_name: array}
    data = container.to_bytes(models.KIND, json.loads(json.dumps(contents)), arrays)
    return stored.from_bytes(data)


def own_arrays(name):
    """The engine's arrays that hold something; lengths are guarded for all alike."""
    return {
        key: array
        for key, array in parts(name)[1].items()
        if not key.startswith("history.") and not key.endswith(".lengths") and len(array)
    }


def with_value(array, at, value):
    changed = array.copy()
    with np.errstate(all="ignore"):
        changed[at] = np.array(value).astype(array.dtype)
    return changed


def places(array):
    """Some places of an array, the first and the last among them."""
    return sorted(set(np.linspace(0, len(array) - 1, 5).astype(int).tolist()))


# ---------------------------------------------------------------------- breaking what guards
def put(*values):
    return lambda name, array: [with_value(array, at, v) for at in places(array) for v in values]


def fill(*values):
    return lambda name, array: [with_value(array, slice(None), value) for value in values]


def break_edges(name, array):
    """NaN becomes a number, a number becomes NaN, in all places and in one."""
    padding = np.flatnonzero(np.isnan(array))
    numbers = np.flatnonzero(~np.isnan(array))
    for value in (-1e308, 0.0, 1e308, np.inf):
        yield with_value(array, padding, value)
        yield with_value(array, padding[-1], value)
        yield with_value(array, padding[0], value)
    yield with_value(array, numbers, np.nan)
    yield with_value(array, numbers[0], np.nan)


def break_keys(name, array):
    """Keys that are no numbers, children that are not there; a leaf's weights out of range."""
    yield with_value(array, slice(None), np.nan)
    yield with_value(array, slice(None), np.inf)
    yield with_value(array, 0, np.nan)
    yield with_value(array, 1, 1e9)  # its bits are two places
    yield with_value(array, 3, np.inf)


def break_padding(name, array):
    """Numbers behind the columns in use, which the kernels take for zeros; and bad numbers."""
    _, arrays = parts(name)
    stride = int(arrays["stride"][0])
    n_columns = 1 + sum((arrays[f"{of}_column"] >= 0).sum() for of in ("value", "missing", "level"))
    assert n_columns < stride, "the model must have padding"
    if len(array) == len(arrays.get("model.numbers", ())):  # one with bends has other columns
        begins = np.cumsum([0, *arrays["model.numbers.lengths"]])[:-1]
        bends = arrays.get("model.bend_feature.lengths", 0 * begins)
        is_plain = (arrays["model.numbers.lengths"] > 0) & (bends == 0)
        n_columns += begins[is_plain][0]
    for value in (1.0, np.nan, np.inf):
        yield with_value(array, n_columns, value)
    yield with_value(array, 0, np.nan)
    yield with_value(array, 0, np.inf)


BROKEN = {
    "flags": fill(2, 255),
    "index": fill(-(2**31), -2, 10_000, 2**31 - 1),
    "count": lambda name, array: fill(-1, np.iinfo(array.dtype).max)(name, array),
    "finite": put(np.nan, np.inf, -np.inf),
    "bounded": put(np.nan, np.inf, -np.inf),
    "finite or NaN": put(np.inf, -np.inf),
    "edges": break_edges,
    "rows": fill(np.inf, 1e3, -1.0),
    "threshold": fill(np.nan, np.inf),
    "keys": break_keys,
    "padded": break_padding,
    "text": fill(0, 255),
    "reach": fill(np.nan, np.inf, 0.0, -1.0),
    "any number": lambda name, array: [],
}
every_model = pytest.mark.parametrize("name", MODELS)


@every_model
def test_every_array_has_a_guard(name):
    without = own_arrays(name).keys() - GUARDS.keys()
    assert not without, f"add a row to GUARDS, and a check to soundness.cpp, for {without}"


def test_every_guard_is_of_an_array():
    known = set().union(*map(own_arrays, MODELS))
    assert set(GUARDS) == known


def is_used(name, key):
    """Whether a model has what an array is of: trials, or splits."""
    arrays = parts(name)[1]
    if key.startswith("trial."):
        return bool((arrays["trial.feature"] >= 0).any())
    if key == "bend_trial.model":
        return bool((arrays[key] >= 0).any())
    return key != "node.threshold" or bool((arrays["node.left"] >= 0).any())


@every_model
def test_what_breaks_a_guard_is_refused(name):
    for key, array in own_arrays(name).items():
        if not is_used(name, key):
            continue
        for number, broken in enumerate(BROKEN[GUARDS[key]](name, array)):
            with pytest.raises(ModelFileError):
                pytest.fail(f"{key}, {number}: {load(name, key, broken)} was accepted")


@every_model
def test_every_length_counts(name):
    for key, array in parts(name)[1].items():
        if key.startswith("history."):
            continue
        for n in (0, len(array) - 1, len(array) + 1, 2 * len(array)):
            is_free = key == "model.numbers.lengths" and not array[n:].any()  # places of no model
            if n in (len(array), -1) or (n < len(array) and is_free):
                continue
            with pytest.raises(ModelFileError):
                pytest.fail(f"{key}, {n}: {load(name, key, np.resize(array, n))} was accepted")


HOSTILE = (np.nan, np.inf, -1e308, 1e149, -1.0, 0.0, 5e-324, 33.0)


def try_hostile(name, key, array, value, at):
    """Use a model with one array changed, if it is accepted, and save it."""
    try:
        model = load(name, key, with_value(array, at, value))
    except ModelFileError:
        return
    stored.exercise(model, n_rows=20)
    stored.from_bytes(stored.to_bytes(model))


@every_model
def test_what_is_accepted_works_and_can_be_saved(name):
    """Whatever else the numbers are: for every array one of the hostile values."""
    for number, (key, array) in enumerate(own_arrays(name).items()):
        value = HOSTILE[(number + len(name)) % len(HOSTILE)]
        try_hostile(name, key, array, value, slice(None) if number % 2 else 0)


@pytest.mark.slow
@every_model
def test_every_hostile_number_in_every_array(name):
    """Also run by `make sanitize`, where a kernel that leaves its memory would be caught."""
    for key, array in own_arrays(name).items():
        for value in HOSTILE:
            for at in (slice(None), 0, len(array) - 1):
                try_hostile(name, key, array, value, at)
