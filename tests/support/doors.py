"""The ways into a model, and what the table in docs/input.md says that each of them does."""

from pathlib import Path

import numpy as np

PAGE = Path(__file__).parents[2] / "docs" / "input.md"
LEARN = {
    "partial_fit": lambda model, sent: model.partial_fit(
        sent.X, sent.y, classes=sent.classes, sample_weight=sent.weights
    ),
    "learn_many": lambda model, sent: model.learn_many(sent.columns, sent.y, sent.weights),
    "learn_one": lambda model, sent: model.learn_one(sent.row, sent.label, sent.weight),
}


def by_label(proba):
    """Probabilities as an array, whether they came as a dict or as a frame."""
    return np.array([*proba.values()] if isinstance(proba, dict) else proba.to_numpy().T).T


# Labels and probabilities
PREDICT = {
    "predict": lambda model, sent: (
        [model.predict(sent.X), model.apply(sent.X), model.decision_function(sent.X)],
        model.predict_proba(sent.X),
    ),
    "predict_many": lambda model, sent: (
        model.predict_many(sent.columns),
        by_label(model.predict_proba_many(sent.columns)),
    ),
    "predict_one": lambda model, sent: (
        model.predict_one(sent.row),
        by_label(model.predict_proba_one(sent.row)),
    ),
}
DOORS = {**LEARN, **PREDICT}
ERRORS = {"`ValueError`": ValueError, "`TypeError`": TypeError}


def read_table():
    """The page's lines: {what is sent: {door: what it gets}}."""
    found, doors = {}, None
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("| ").split(" | ")]
        if cells[1:2] == ["`partial_fit`"]:
            doors = [cell.strip("`") for cell in cells[1:7]]
        elif not line.startswith("|"):
            doors = None
        elif doors and not line.startswith("|--"):
            assert len(cells) == 8, line
            assert cells[0] not in found, line
            found[cells[0]] = dict(zip(doors, cells[1:7], strict=True))
    return found


TABLE = read_table()
