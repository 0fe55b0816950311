"""Without bends the tree is what it was before there were any.

`straight.json` was written by the last version that knew only lines, by `said_by` of the same
models. Probabilities are compared to six digits: the last ones are those of the machine.
"""

import json
from pathlib import Path

import numpy as np
import pytest

import stored
from driftree import DynamicModelTreeClassifier

EXPECTED = json.loads(Path(__file__).with_name("straight.json").read_text(encoding="utf-8"))
RASH = {"epsilon": 0.01, "evidence_window": 2000, "model_window": 200, "max_nodes": 15}


def mixed(model):
    """Numbers, categories, gaps and changes of the concept, in batches."""
    said = []
    for start in range(0, 6000, 50):
        columns, y = stored.draw(50, start=start)
        if start:
            said += [*model.predict_proba_many(columns).values()]
        model.learn_many(columns, y)
    return said


def three_labels(model):
    """Curves that lines must do for, row by row, and labels that come late."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(2500, 4)) * [1, 10, 0.1, 1]
    y = np.digitize(np.abs(X[:, 0]) + 0.1 * X[:, 1], [0.7, 1.5]) * (np.arange(2500) > 100)
    said = []
    for row, label in zip(X.tolist(), y.tolist(), strict=True):
        x = dict(zip("abcd", row, strict=True))
        said.append(np.array([*model.predict_proba_one(x).values(), 0.0])[:1])
        model.learn_one(x, label)
    return said


STREAMS = {"mixed": mixed, "three labels": three_labels}


def said_by(model, learn):
    """Some of the probabilities that were given before rows were learnt; and the changes."""
    said = np.concatenate([np.ravel(one) for one in learn(model)])
    changes = [f"{event.kind} {event.n_rows} {event.gain:.3f}" for event in model.events_]
    some = said[:: max(1, len(said) // 100)].round(8).tolist()
    return {"some": some, "mean": float(said.mean()), "changes": changes}


@pytest.mark.parametrize("rash", [False, True])
@pytest.mark.parametrize("name", STREAMS)
def test_without_bends_the_tree_is_what_it_was(name, rash):
    parameters = RASH if rash else {}
    said = said_by(DynamicModelTreeClassifier(**parameters, max_bends=0), STREAMS[name])
    expected = EXPECTED[f"{name}, rash" if rash else name]
    assert said["changes"] == expected["changes"]
    assert said["mean"] == pytest.approx(expected["mean"], abs=1e-6)
    np.testing.assert_allclose(said["some"], expected["some"], atol=1e-6)
