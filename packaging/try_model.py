"""Try an installed driftree: learn, save, load, explain. A release runs it with every wheel."""

import tempfile
from pathlib import Path

import numpy as np

import driftree


def main() -> None:
    rng = np.random.default_rng(1)
    X = rng.uniform(-1, 1, size=(3000, 2))
    y = (X[:, 0] > 0) ^ (X[:, 1] > 0)
    model = driftree.DynamicModelTreeClassifier().partial_fit(X, y)
    path = Path(tempfile.mkdtemp(), "model.dmt")
    model.save(path)
    again = driftree.load(path)
    assert np.array_equal(again.predict_proba(X), model.predict_proba(X))
    assert again.score(X, y) > 0.9
    print(again)
    print(driftree.export_text(again, max_weights=2))


if __name__ == "__main__":
    main()
