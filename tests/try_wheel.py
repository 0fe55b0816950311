"""Does an installed wheel learn, explain, and come back from a file? Run by cibuildwheel."""

import tempfile
from pathlib import Path

import numpy as np

import driftree

rng = np.random.default_rng(1)
X = rng.uniform(size=(2000, 3))
y = (X[:, 0] > 0.5) ^ (X[:, 1] > 0.5)
model = driftree.DynamicModelTreeClassifier().partial_fit(X, y)
assert model.score(X, y) > 0.9
assert model.events_
print(model.explain_one(dict(enumerate(X[0].tolist()))))
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "model.dmt"
    model.save(path)
    assert (driftree.load(path).predict_proba(X) == model.predict_proba(X)).all()
driftree.show_versions()
