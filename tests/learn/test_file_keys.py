"""What a file says becomes keys of dicts: Python's hashes of numbers and tuples can be foreseen."""

import contextlib
import itertools
import json
import time
import timeit

import numpy as np
import pytest

import stored
from driftree import DynamicModelTreeClassifier, FIMTDDClassifier, ModelFileError
from driftree.evaluate import checkpoints
from driftree.learn.storage import container, models
from driftree.learn.validation import MAX_NUMBERS, check_keys

MODULUS = 2**61 - 1  # of Python's hashes of numbers
N = 12_000
PLAIN = {
    "whole numbers": lambda i: i,
    "tuples": lambda i: {"tuple": [i]},
    "nested tuples": lambda i: {"tuple": [{"tuple": [i, "a"]}]},
}


def packed():
    model = DynamicModelTreeClassifier(max_nodes=1)
    model.learn_one({"a": 1.0, "b": "x"}, 0)
    contents, arrays = models.pack(model)
    return json.loads(json.dumps(contents)), arrays


def as_labels(contents, arrays, keys):
    contents["learnt"]["labels"] = keys
    arrays["n_classes"] = np.array([len(keys)], dtype=np.int32)


def as_names(contents, arrays, keys):
    contents["learnt"].update(names=keys, levels=[None] * len(keys))
    arrays["is_categorical"] = np.zeros(len(keys), dtype=np.uint8)


def as_levels(contents, arrays, keys):
    contents["learnt"]["levels"][1] = keys


def as_parameter(contents, arrays, keys):
    contents["parameters"]["categorical"] = keys


def as_parameter_of_the_tree(contents, arrays, keys):
    contents["learnt"]["categorical"] = keys


PLACES = (as_labels, as_names, as_levels, as_parameter, as_parameter_of_the_tree)


def seconds(act):
    best = float("inf")
    for _ in range(3):
        start = time.process_time()
        with contextlib.suppress(ModelFileError):  # small whole numbers may fit
            act()
        best = min(best, time.process_time() - start)
    return best


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("make", PLAIN.values(), ids=PLAIN)
def test_keys_that_collide_cost_no_more_than_others(place, make):
    def read(step):
        contents, arrays = packed()
        place(contents, arrays, [make(step * i) for i in range(N)])
        data = container.to_bytes(models.KIND, contents, arrays)
        return seconds(lambda: stored.from_bytes(data))

    assert read(MODULUS) < 10 * read(1)


def test_names_of_metrics_that_collide_cost_no_more_than_others():
    def read(step):
        item = {"dict": [[step * i, 0] for i in range(N)]}
        return seconds(lambda: checkpoints._decode(item, {}))

    assert read(MODULUS) < 10 * read(1)
    with pytest.raises(ValueError, match="12,000 names of metrics"):
        checkpoints._encode(dict.fromkeys(map(float, range(N))), {})


@pytest.mark.parametrize(
    "keys",
    [
        [2**4095 + MODULUS * i for i in range(5000)],
        [(0,) * 20 + (MODULUS * i,) for i in range(5000)],
        [("a" * 4096, MODULUS * i) for i in range(5000)],
        [tuple(range(100_000))],
        [(((((((((1, 2, 3),),),),),),),),) * i for i in range(400)],
    ],
    ids=["long numbers", "long tuples", "long texts", "one tuple", "nested tuples"],
)
def test_keys_that_are_long_to_compare_count_more(keys):
    with pytest.raises(ValueError, match="parts in total"):
        check_keys(keys, "labels")


def test_as_many_as_are_allowed():
    pairs = itertools.product(range(100), range(100))
    for keys in (map(float, range(10_000)), pairs, map(str, range(10**5)), range(-(10**5), 10**5)):
        check_keys(keys, "labels")
    check_keys((b"%d" % i for i in range(10**5)), "labels")
    check_keys((("free", str(i)) for i in range(10**5)), "names")


@pytest.mark.parametrize(
    "make", [lambda i: ("free", str(i)), lambda i: 1000 * i], ids=["pairs", "numbers"]
)
def test_many_names_are_saved_and_loaded(make):
    model = DynamicModelTreeClassifier(absent="zero")
    model.learn_many([{make(i): 1} for i in range(12_000)], [0, 1] * 6000)
    data = stored.to_bytes(model)
    assert stored.to_bytes(stored.from_bytes(data)) == data


def test_small_whole_numbers_hardly_collide():
    """The worst of them: equal in as many bits as a dict of this size looks at first."""
    n_bits = (2 * N).bit_length()

    def cost(step):
        keys = [step * i for i in range(2 ** (31 - n_bits))]
        return min(timeit.repeat(lambda: dict.fromkeys(keys), number=20, repeat=5))

    assert cost(2**n_bits) < 10 * cost(1)


@pytest.mark.parametrize("kind", [DynamicModelTreeClassifier, FIMTDDClassifier])
def test_ten_thousand_labels_are_saved_and_loaded(kind):
    model = kind(max_nodes=1)
    model.partial_fit([[0.0]] * 2, [0, 1], classes=range(MAX_NUMBERS))
    data = stored.to_bytes(model)
    assert stored.to_bytes(stored.from_bytes(data)) == data
