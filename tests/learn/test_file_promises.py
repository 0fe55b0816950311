"""What is written can be read, and what was read can be written: one look serves both."""

import dataclasses

import numpy as np
import pytest

import stored
from driftree import ModelFileError
from driftree.learn.history import MAX_SAMPLES
from driftree.learn.storage import container, models
from driftree.learn.validation import MAX_NUMBERS


def learnt():
    model = stored.MAKERS["measured"]()
    stored.learn_batches(model, *stored.draw(1630))
    assert model._tree.history.events
    return model


def set_event(**changes):
    def change(model):
        events = model._tree.history.events
        events[-1] = dataclasses.replace(events[-1], **changes)

    return change


def set_sample(**changes):
    def change(model):
        samples = model._tree.history.samples
        samples[-1] = samples[-1]._replace(**changes)

    return change


def many_samples(model):
    samples = model._tree.history.samples
    samples += [samples[-1]] * MAX_SAMPLES


def many_labels(model):
    model._tree.target.labels.update((i, i) for i in range(2, MAX_NUMBERS + 5))


WRONG = {
    "an event of rows to come": set_event(n_rows=10**6),
    "an event of a step to come": set_event(step=10**6),
    "an event of no step": set_event(step=-1),
    "an event of another node": set_event(node=7),
    "an event of another value": set_event(gain="x"),
    "an event without a path": set_event(path=None),
    "a sample of rows to come": set_sample(n_rows=10**6),
    "a sample of another tree": set_sample(nodes={}),
    "more samples than are kept": many_samples,
    "a distance of no rows": lambda model: setattr(model._tree.history, "_distance", 0),
    "a first row to come": lambda model: setattr(model._tree.history, "first_row", 10**6),
    "a label more": lambda model: model._tree.target.labels.update(more=2),
    "many labels": many_labels,
    "a name less": lambda model: model._tree.encoder.names.popitem(),
    "levels of a number": lambda model: model._tree.encoder.levels.__setitem__(0, {"x": 0}),
    "n_features_in": lambda model: setattr(model, "n_features_in_", -1),
    "feature_names_in": lambda model: setattr(model, "feature_names_in_", np.array(["a"])),
}


@pytest.mark.parametrize("change", WRONG.values(), ids=WRONG)
def test_what_could_not_be_read_again_is_not_written(change, tmp_path):
    path = tmp_path / "model.dmt"
    path.write_bytes(b"old")
    model = learnt()
    change(model)
    with pytest.raises((ValueError, TypeError)):
        model.save(path)
    assert path.read_bytes() == b"old"


def test_the_same_look_when_a_model_is_read_and_when_it_is_written(monkeypatch):
    model = learnt()
    data = stored.to_bytes(model)

    def refuse(*_arguments):
        raise ModelFileError("not this one")

    for name in ("read_model", "bounds.check"):
        with monkeypatch.context() as patch:
            patch.setattr(f"driftree.learn.storage.models.{name}", refuse)
            with pytest.raises(ModelFileError, match="not this one"):
                models.pack(model)
            with pytest.raises(ModelFileError, match="not this one"):
                stored.from_bytes(data)


@pytest.mark.parametrize("name", ["measured", "paper"])
def test_nothing_in_a_history_is_so_large_that_it_cannot_be_written_later(name):
    """All whole numbers of the log, one by one as large as it takes: refused, or good for ever."""
    model = stored.MAKERS[name]()
    stored.learn_batches(model, *stored.draw(1630))
    contents, arrays = container.from_bytes(stored.to_bytes(model), models.KIND)
    n_accepted = 0
    for holder, key in whole_numbers(contents["history"]):
        before = holder[key]
        for value in (2**53, 2**52, model.n_rows_seen_ + 1, before + 1):
            holder[key] = value
            try:
                changed = stored.from_bytes(container.to_bytes(models.KIND, contents, arrays))
            except ModelFileError:
                continue
            n_accepted += 1
            stored.learn_batches(changed, *stored.draw(300, start=1630))
            changed._tree.history._distance *= 2  # as it does when there are many samples
            stored.from_bytes(stored.to_bytes(changed))
        holder[key] = before
    assert n_accepted > 0


def whole_numbers(item):
    """Those outside of trees and paths, of which there are many of a kind."""
    for key, inner in item.items():
        if type(inner) is int:
            yield item, key
    for event in item["events"][:1] + item["events"][-1:]:
        yield from ((event, key) for key, inner in event.items() if type(inner) is int)
