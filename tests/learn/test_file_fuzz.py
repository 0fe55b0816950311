"""Files damaged by chance, or on purpose: an error that says so, or a model that works."""

import copy
import functools
import json

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import stored
from driftree import ModelFileError
from driftree.learn.storage import container, models
from driftree.learn.storage.manifest import encode

NAMES = ("measured", "three labels", "paper", "FIMT-DD")
every_model = pytest.mark.parametrize("name", NAMES)


@functools.cache
def saved(name):
    """The file of a small model in mid-stream."""
    if name == "three labels":
        model = stored.MAKERS["measured"](max_nodes=5)
        stored.learn_batches(model, *stored.draw(700, n_labels=3))
    else:
        model = stored.MAKERS[name](max_nodes=7)
        stored.learn_rows(model, *stored.draw(1200))
        assert model.n_nodes_ > 1
        if name == "measured":  # there are bends in the models and in the log
            assert model._tree.engine.bends(int(model._tree.engine.model[0]))
            assert {event.kind for event in model.events_} >= {"bend", "unbend", "split"}
    return stored.to_bytes(model)


@functools.cache
def parts(name):
    return container.from_bytes(saved(name), models.KIND)


def some(n):
    """So many examples by default, and as many more as the profile says; none is shrunk."""
    n = n * settings().max_examples // 100
    return settings(max_examples=n, phases=[Phase.explicit, Phase.generate])


# ---------------------------------------------------------------------- by chance
places = st.floats(0, 1, exclude_max=True)
damages = st.one_of(
    st.tuples(st.just("flip"), places, st.integers(0, 7)),
    st.tuples(st.just("put"), places, st.binary(min_size=1, max_size=9)),
    st.tuples(st.just("insert"), places, st.binary(min_size=1, max_size=9)),
    st.tuples(st.just("cut"), places, st.integers(1, 5000)),
    st.tuples(st.just("end"), places, st.just(0)),
    st.tuples(st.just("swap"), places, st.integers(1, 5000)),
)


def damage(data, kind, place, what):
    """Flip a bit, overwrite, insert or cut out bytes, cut the end off, swap two parts."""
    at, data = int(place * len(data)), bytearray(data)
    if kind == "flip":
        data[at : at + 1] = [byte ^ 1 << what for byte in data[at : at + 1]]
    elif kind == "put":
        data[at : at + len(what)] = what
    elif kind == "insert":
        data[at:at] = what
    elif kind == "cut":
        del data[at : at + what]
    elif kind == "end":
        del data[at:]
    else:
        data[at : at + 2 * what] = data[at + what : at + 2 * what] + data[at : at + what]
    return bytes(data)


def try_damaged(name, chances):
    data = saved(name)
    for chance in chances:
        data = damage(data, *chance)
    try:
        model = stored.from_bytes(data)
    except ModelFileError:
        return
    assert stored.to_bytes(model) == saved(name) == data


some_damages = st.lists(damages, min_size=1, max_size=3)


@every_model
@some(100)
@given(chances=some_damages)
def test_a_damaged_file_is_refused_or_was_not_damaged(name, chances):
    try_damaged(name, chances)


@pytest.mark.slow
@every_model
@some(1000)
@given(chances=some_damages)
def test_thousands_of_damaged_files(name, chances):
    try_damaged(name, chances)


@every_model
def test_every_byte_counts(name):
    """No byte of a file is padding that anyone could use, or lose."""
    data = saved(name)
    for at in range(0, len(data), 997):
        with pytest.raises(ModelFileError):
            container.from_bytes(damage(data, "flip", at / len(data), at % 8), models.KIND)


# ---------------------------------------------------------------------- on purpose
INTEGERS = (-(2**31), -3, -2, -1, 0, 1, 2, 3, 5, 7, 8, 33, 34, 255, 2**31 - 1, 2**53, 2**62)
FLOATS = (np.nan, np.inf, -np.inf, 1e308, -1e308, 5e-324, 0.0, -1.0, 1.0, 32.0, 33.0, 1e9)
ITEMS = (
    None,
    True,
    -1,
    0,
    1,
    2,
    40,
    2**63,
    1e308,
    "",
    "==",
    "split",
    [],
    {},
    [[]],
    {"float": "nan"},
)
changes = st.one_of(
    st.tuples(st.just("set"), places, places, st.sampled_from(INTEGERS + FLOATS)),
    st.tuples(st.just("set"), places, places, st.sampled_from(INTEGERS + FLOATS)),
    st.tuples(st.just("fill"), places, places, st.sampled_from(INTEGERS + FLOATS)),
    st.tuples(st.just("swap"), places, places, places),
    st.tuples(st.just("resize"), places, places, st.integers(-3, 3)),
    st.tuples(st.just("move"), places, places, st.integers(1, 3)),
    st.tuples(st.just("bits"), places, places, st.integers(0, 63)),
    st.tuples(st.just("json"), places, places, st.sampled_from(ITEMS)),
    st.tuples(st.just("json"), places, places, st.sampled_from(ITEMS)),
    st.tuples(st.just("parameter"), places, places, st.sampled_from(INTEGERS + FLOATS)),
)


@np.errstate(all="ignore")
def change(contents, arrays, kind, first, second, what):
    """Change one thing in what a file holds; it is signed again afterwards."""
    if kind == "json":
        spots = list(walk(contents))
        holder, key = spots[int(first * len(spots))]
        holder[key] = copy.deepcopy(what)  # it may be put into itself later
        return
    if kind == "parameter":
        learnt = contents["learnt"]["parameters"]
        key = sorted(learnt)[int(first * len(learnt))]
        is_whole = type(learnt[key]) is int and np.isfinite(what)
        learnt[key] = int(what) if is_whole else encode(float(what))
        return
    name = sorted(arrays)[int(first * len(arrays))]
    array = arrays[name] = arrays[name].copy()
    if kind == "resize":
        arrays[name] = np.resize(array, max(0, len(array) + what))
    if len(array) == 0 or kind == "resize":
        return
    at = int(second * len(array))
    bits = array.view(f"u{array.itemsize}")
    if kind == "set":
        array[at] = np.array(what).astype(array.dtype)
    elif kind == "fill":
        array[:] = np.array(what).astype(array.dtype)
    elif kind == "swap":
        other = int(what * len(array))
        array[[at, other]] = array[[other, at]]
    elif kind == "move":  # lengths that still add up
        bits[at], bits[at - 1] = bits[at] + what, bits[at - 1] - what
    else:
        bits[at] ^= bits.dtype.type(1 << what % (8 * array.itemsize))


def walk(item):
    """All places in a JSON document, as (where, key)."""
    pairs = item.items() if isinstance(item, dict) else enumerate(item)
    for key, inner in list(pairs):
        yield item, key
        if isinstance(inner, (dict, list)):
            yield from walk(inner)


def try_changed(name, alterations):
    contents, arrays = parts(name)
    contents, arrays = json.loads(json.dumps(contents)), dict(arrays)
    for alteration in sorted(alterations, key=lambda one: one[0] != "parameter"):
        change(contents, arrays, *alteration)
    try:
        data = container.to_bytes(models.KIND, contents, arrays)
        model = stored.from_bytes(data)
    except ModelFileError:
        return
    stored.exercise(model)
    again = stored.to_bytes(model)  # who was let in is never locked out
    assert stored.to_bytes(stored.from_bytes(again)) == again


some_changes = st.lists(changes, min_size=1, max_size=2)


@every_model
@some(50)
@given(alterations=some_changes)
def test_a_hostile_file_is_refused_or_makes_a_model_that_works(name, alterations):
    try_changed(name, alterations)


@pytest.mark.slow
@every_model
@some(1000)
@given(alterations=some_changes)
def test_thousands_of_hostile_files(name, alterations):
    """Also run by `make sanitize`, where a kernel that leaves its memory would be caught."""
    try_changed(name, alterations)
