"""Makes the model files that every later version must read, and notes what they say.

A file that is there is never written again: it is what that version wrote. What is noted of it in
the JSON beside it (probabilities, text, changes) is written anew when words or figures change for
a good reason.

    PYTHONPATH=src:tests/support python tests/golden/make.py
"""

import json
import math
from pathlib import Path

import numpy as np

import driftree
import stored
from driftree import DynamicModelTreeClassifier, FIMTDDClassifier, export_text

FOLDER = Path(__file__).parent


def measured():
    """Categories, gaps, a feature that comes late, every kind of change, trials under way."""
    model = stored.MAKERS["measured"](trials=2, categorical=("shop",))
    for start in range(0, 6000, 50):
        columns, y = stored.draw(50, start=start)
        columns["shop"] = (columns["a"] * 10).round() % 3
        if start > 3000:
            columns["late"] = columns["a"] ** 2
        model.learn_many(columns, y)
    return model


def three_labels():
    """The third of them came late, and ended the race of the links."""
    model = stored.MAKERS["measured"](max_nodes=5)
    stored.learn_rows(model, *stored.draw(600))
    stored.learn_rows(model, *stored.draw(900, start=600, n_labels=3))
    return model


def paper():
    """Rows one by one, some of which still wait; numbers as categories."""
    model = stored.MAKERS["paper"](categorical=["shop"], max_nodes=7, gain_step=0.6)
    columns, y = stored.draw(1530)
    stored.learn_rows(model, columns | {"shop": (columns["a"] * 10).round() % 3}, y)
    return model


def fimtdd():
    """Three labels, of which one comes late."""
    model = stored.MAKERS["FIMT-DD"](max_nodes=5)
    stored.learn_batches(model, *stored.draw(300))
    stored.learn_rows(model, *stored.draw(530, start=300, n_labels=3))
    return model


def arrays():
    """What scikit-learn remembers: plain arrays, whole numbers as labels, two rows of a start."""
    X = np.random.default_rng(1).normal(size=(700, 3))
    model = DynamicModelTreeClassifier(max_nodes=3, keep_history=False)
    return model.partial_fit(X, (X[:, 0] > 0).astype(int), classes=[0, 1])


def never_learnt():
    return DynamicModelTreeClassifier(
        categorical=("a", 2, (b"c", 1.5)), evidence_window=math.inf, bins=32
    )


def fimtdd_never_learnt():
    return FIMTDDClassifier(max_nodes=31)


MODELS = (measured, three_labels, paper, fimtdd, arrays, never_learnt, fimtdd_never_learnt)


def path_of(make):
    return FOLDER / f"format-1-{make.__name__.replace('_', '-')}.dmt"


def note(model):
    """What a model says, as JSON."""
    if model._tree is None:
        return {"model": repr(model)}
    noted = {"model": repr(model), "n_rows": model.n_rows_seen_, "n_nodes": model.n_nodes_}
    columns, _ = stored.draw(30, start=7000)
    rows = [{name: column[i] for name, column in columns.items()} for i in range(30)]
    rows += [{}, {f"x{j}": value for j, value in enumerate((0.5, -1.0, 2.0))}]
    noted["classes"] = list(map(str, model.classes_))
    noted["probabilities"] = [list(model.predict_proba_one(row).values()) for row in rows]
    if isinstance(model, DynamicModelTreeClassifier):
        noted["text"] = export_text(model).splitlines()
        noted["events"] = list(map(str, model.events_))
    return noted


def main():
    for make in MODELS:
        path = path_of(make)
        if not path.exists():
            make().save(path)
        noted = note(driftree.load(path))
        text = json.dumps(noted, indent=1, ensure_ascii=False)
        path.with_suffix(".json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
