"""Threads: some predict while another learns; several models learn at a time."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from driftree import DynamicModelTreeClassifier, FIMTDDClassifier
from driftree.streams import agrawal

PREDICT_WHILE_LEARNING = """
import sys, threading
import numpy as np
import driftree

sys.setswitchinterval(1e-5)
X = np.random.default_rng(1).normal(size=(20_000, 5))
y = ((X[:, 0] > 0) ^ (X[:, 1] > 0)).astype(int)
columns = {f"x{j}": X[:500, j] for j in range(5)}
row = {name: column[0] for name, column in columns.items()}
model = getattr(driftree, sys.argv[1])().partial_fit(X[:1000], y[:1000])
done, errors = False, []

def predict():
    try:
        while not done:
            assert np.isfinite(model.predict_proba(X[:500])).all()
            proba = model.predict_proba_many(columns)
            assert all(np.isfinite(part).all() for part in proba.values())
            proba = model.predict_proba_one({"x0": 1.0, "never seen": "a"})
            assert abs(sum(proba.values()) - 1) < 1e-9
            model.predict_one(row)
    except BaseException as error:
        errors.append(error)
        raise

readers = [threading.Thread(target=predict) for _ in range(2)]
for reader in readers:
    reader.start()
for start in range(1000, 10_000, 100):
    rows = slice(start, start + 500)
    labels = y[rows] ^ (start // 5000 % 2)
    if start % 1000 == 0:
        labels[0] = len(model.classes_) + 1  # a new label: every model moves to other memory
        model.learn_one(row | {f"new {start}": 1.0}, int(labels[0]))  # and a new feature
    model.partial_fit(X[rows], labels)
done = True
for reader in readers:
    reader.join()
sys.exit(len(errors))
"""


@pytest.mark.parametrize("learner", ["DynamicModelTreeClassifier", "FIMTDDClassifier"])
def test_some_threads_may_predict_while_another_learns(learner):
    command = [sys.executable, "-c", PREDICT_WHILE_LEARNING, learner]
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert (run.returncode, run.stderr) == (0, "")


LEARNERS = [DynamicModelTreeClassifier, DynamicModelTreeClassifier.paper, FIMTDDClassifier]


@pytest.mark.parametrize("build", LEARNERS)
def test_models_in_threads_learn_the_same_bits_as_one_after_the_other(build):
    def learn(seed):
        model = build()
        for X, y in agrawal(6000, seed=seed, function=1, batch_rows=500):
            model.partial_fit(X, y)
        return model

    with ThreadPoolExecutor(2) as pool:
        together = list(pool.map(learn, range(4)))
    for seed, model in enumerate(together):
        alone = learn(seed)
        arrays = alone._tree.engine.arrays()
        assert arrays.keys() == model._tree.engine.arrays().keys()
        for name, array in model._tree.engine.arrays().items():
            assert np.asarray(array).tobytes() == np.asarray(arrays[name]).tobytes()


@pytest.mark.parametrize("build", LEARNERS)
def test_parts_of_a_batch_in_threads_are_predicted_as_the_whole(build):
    X, y = next(agrawal(8000, seed=1, function=1, batch_rows=8000))
    model = build().fit(X, y)
    with ThreadPoolExecutor(2) as pool:
        parts = list(pool.map(model.predict_proba, np.array_split(X, 5)))
    assert np.concatenate(parts).tobytes() == model.predict_proba(X).tobytes()
