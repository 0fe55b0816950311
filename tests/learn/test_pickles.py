"""Pickles: models move between processes in mid-stream; one of another version says what to do."""

import copy
import io
import multiprocessing
import pickle

import joblib
import numpy as np
import pytest
from sklearn.base import clone

import stored
from driftree import DynamicModelTreeClassifier
from driftree.learn.state import STATE_VERSION
from driftree.version import __version__

every_model = pytest.mark.parametrize("name", stored.MAKERS)


def through_joblib(model):
    file = io.BytesIO()
    joblib.dump(model, file, compress=3)
    file.seek(0)
    return joblib.load(file)


WAYS = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "river": lambda model: model.clone(include_attributes=True),
    "joblib": through_joblib,
    **{
        f"protocol {protocol}": lambda model, protocol=protocol: pickle.loads(
            pickle.dumps(model, protocol=protocol)
        )
        for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1)
    },
}


@every_model
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("stop", [40, 1630])
def test_a_copy_goes_on_as_one_that_was_never_copied(name, way, stop):
    alone, model = stored.MAKERS[name](), stored.MAKERS[name]()
    for one in (alone, model):
        stored.learn_rows(one, *stored.draw(stop))
    twin = way(model)
    for one in (alone, model, twin):
        stored.learn_rows(one, *stored.draw(300, start=stop, n_labels=3))
        stored.learn_batches(one, *stored.draw(300, start=stop + 300))
    assert stored.to_bytes(alone) == stored.to_bytes(model) == stored.to_bytes(twin)


@every_model
def test_a_clone_has_learnt_nothing(name):
    model = stored.MAKERS[name](categorical=("a",))
    stored.learn_rows(model, *stored.draw(40))
    for fresh in (clone(model), model.clone()):
        assert fresh.get_params() == model.get_params()
        assert not hasattr(fresh, "n_rows_seen_")
        assert stored.to_bytes(fresh) == stored.to_bytes(stored.MAKERS[name](categorical=("a",)))


def learn_on(model):
    stored.learn_rows(model, *stored.draw(300, start=333))
    return model


def test_another_process_goes_on_with_a_model_and_gives_it_back():
    """Processes that are spawned share nothing; the pickle is all they know."""
    models = [make() for make in stored.MAKERS.values()]
    for model in models:
        stored.learn_rows(model, *stored.draw(333))
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        twins = pool.map(learn_on, models)
    for model, twin in zip(models, twins, strict=True):
        assert stored.to_bytes(learn_on(model)) == stored.to_bytes(twin)


# ---------------------------------------------------------------------- stamps
@pytest.mark.parametrize(
    ("stamp", "words"),
    [
        ({"state": 99, "driftree": "9.9"}, "pickled by driftree 9.9, "),
        ({"state": 0, "driftree": "0.0.1"}, "pickled by driftree 0.0.1, "),
        (None, "pickled by driftree .no version is given."),
    ],
)
def test_a_pickle_of_another_version_says_what_to_do(stamp, words):
    state = DynamicModelTreeClassifier().__getstate__()
    assert state.pop("_stamp") == {"state": STATE_VERSION, "driftree": __version__}
    if stamp:
        state["_stamp"] = stamp
    with pytest.raises(ValueError, match=words) as caught:
        DynamicModelTreeClassifier().__setstate__(state)
    assert "write it with model.save(path), and read the file here with" in str(caught.value)


def test_the_stamp_is_not_part_of_the_model():
    model = pickle.loads(pickle.dumps(DynamicModelTreeClassifier()))
    assert "_stamp" not in vars(model)


def test_what_is_not_sound_in_a_pickle_does_not_reach_the_kernels():
    model = stored.MAKERS["measured"]()
    stored.learn_rows(model, *stored.draw(100))
    state = model.__getstate__()
    state["_learnt"]["arrays"]["node.left"][0] = 10**6
    with pytest.raises(ValueError, match=r"'node\.left' names a node that is no child"):
        DynamicModelTreeClassifier().__setstate__(state)
    state = model.__getstate__()
    state["_learnt"]["levels"][2] = None
    with pytest.raises(ValueError, match="the levels of feature"):
        DynamicModelTreeClassifier().__setstate__(state)
    state = model.__getstate__()
    state["_learnt"]["arrays"]["node.parent"] = np.zeros(0, dtype=np.int32)
    with pytest.raises(ValueError, match=r"'node\.parent' has a wrong number of items"):
        DynamicModelTreeClassifier().__setstate__(state)
