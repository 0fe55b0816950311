"""`n_jobs`: several threads work on one batch, and nothing but the time depends on it."""

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
from sklearn.base import clone

import driftree
import stored
from driftree import (
    DynamicModelForestClassifier,
    DynamicModelForestRegressor,
    DynamicModelTreeClassifier,
    DynamicModelTreeRegressor,
)
from driftree.learn.storage import ModelFileError
from driftree.streams import hyperplane

N_THREADS = (2, 3, 8)
RASH = {"epsilon": 1.0, "evidence_window": 2000, "model_window": 300}
TASKS = Path("/proc/self/task")
needs_tasks = pytest.mark.skipif(not TASKS.exists(), reason="nobody tells how many threads run")
needs_fork = pytest.mark.skipif(
    not hasattr(os, "fork") or "libasan" in os.environ.get("LD_PRELOAD", ""),
    reason="there is no fork here, or the sanitizer's allocator may hang in a forked process",
)


# ---------------------------------------------------------------------- streams
def draw(n_rows, n_features, *, seed=1, n_classes=2):
    """Rows of which a few features say what is to be predicted, until they say the opposite."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, n_features))
    turn = np.where(np.arange(n_rows) < n_rows // 2, 1, -1)
    score = turn * (X[:, 0] * np.sign(X[:, 1]) + X[:, 2]) + rng.normal(size=n_rows) / 4
    return X, np.digitize(score, np.linspace(-1, 1, n_classes + 1)[1:-1]), score


def draw_words(n_rows, *, seed=1):
    """Rows of 40 out of 3,000 sparse features, two of which say what is to be predicted."""
    rng = np.random.default_rng(seed)
    columns = np.minimum(rng.zipf(1.3, size=(n_rows, 40)), 3000) - 1
    begin = np.arange(0, 40 * n_rows + 1, 40)
    X = scipy.sparse.csr_matrix((np.ones(40 * n_rows), columns.ravel(), begin), (n_rows, 3000))
    X.sum_duplicates()
    score = X[:, 3].toarray().ravel() - X[:, 7].toarray().ravel()
    return X, (score > 0).astype(int), score + rng.normal(size=n_rows) / 4


CASES = {
    "measured": lambda: (DynamicModelTreeClassifier(**RASH), *draw(3000, 40)[:2]),
    "seven labels": lambda: (DynamicModelTreeClassifier(**RASH), *draw(2000, 20, n_classes=7)[:2]),
    "paper": lambda: (
        DynamicModelTreeClassifier.paper(epsilon=1.0, gain_step=1.0),
        *draw(4000, 30)[:2],
    ),
    "paper, three labels": lambda: (
        DynamicModelTreeClassifier.paper(epsilon=1.0, gain_step=1.0),
        *draw(2000, 20, n_classes=3)[:2],
    ),
    "numbers": lambda: (DynamicModelTreeRegressor(**RASH), *draw(3000, 40)[::2]),
    "quantiles": lambda: (DynamicModelTreeRegressor("quantile", **RASH), *draw(1500, 20)[::2]),
    "paper, numbers": lambda: (
        DynamicModelTreeRegressor.paper(epsilon=1.0, gain_step=1.0),
        *draw(3000, 30)[::2],
    ),
    "words": lambda: (DynamicModelTreeClassifier(**RASH), *draw_words(1500)[:2]),
    "words, numbers": lambda: (DynamicModelTreeRegressor(**RASH), *draw_words(1500)[::2]),
    "forest": lambda: (DynamicModelForestClassifier(5, **RASH), *draw(2000, 8)[:2]),
    "forest, numbers": lambda: (DynamicModelForestRegressor(4, **RASH), *draw(1500, 8)[::2]),
    "forest, words": lambda: (DynamicModelForestClassifier(3, **RASH), *draw_words(1000)[:2]),
}


def learn(model, X, y, batch_rows=1000):
    for start in range(0, X.shape[0], batch_rows):
        model.partial_fit(X[start : start + batch_rows], y[start : start + batch_rows])
    return model


def everything(model, X):
    """All that can be asked of a batch, as bytes."""
    names = ["predict", "predict_proba", "decision_function", "apply", "predict_interval"]
    if getattr(model, "loss", None) == "quantile":
        names[-1] = "predict_quantiles"
    return [getattr(model, name)(X).tobytes() for name in names if hasattr(model, name)]


# ---------------------------------------------------------------------- the same bits
@pytest.mark.parametrize("case", CASES)
def test_any_number_of_threads_learns_and_predicts_the_same_bits(case):
    model, X, y = CASES[case]()
    alone = learn(clone(model), X, y)
    file, answers = stored.to_bytes(alone), everything(alone, X)
    for n in N_THREADS:
        together = learn(clone(model).set_params(n_jobs=n), X, y)
        assert stored.to_bytes(together) == file
        assert everything(together, X) == answers


def test_several_threads_do_work():
    model, X, y = CASES["measured"]()
    model.set_params(n_jobs=2)
    for _ in range(300):  # until a core was free
        processor, own = time.process_time(), time.thread_time()
        model.partial_fit(X[:1000], y[:1000])
        if time.process_time() - processor > 1.1 * (time.thread_time() - own):
            return
    pytest.fail("no other thread ever did anything")


def test_all_trees_of_a_forest_learn_a_step_even_if_a_decision_fails(monkeypatch):
    model, X, y = CASES["forest"]()
    learn(model.set_params(n_jobs=2), X[:1000], y[:1000])
    trees = model._tree.trees

    def fail():
        raise KeyboardInterrupt

    for tree in trees[1:]:
        monkeypatch.setattr(tree, "decide", fail)
    with pytest.raises(KeyboardInterrupt):
        learn(model, X[1000:], y[1000:])
    assert len({tree.engine.n_rows for tree in trees}) == 1


def test_rows_that_lack_new_features_are_predicted_alike():
    X, y, _ = draw(4000, 6)
    model = DynamicModelTreeClassifier().partial_fit(X, y)
    names = [f"x{j}" for j in range(6)]
    model.learn_one(dict(zip([*names, "new"], [*X[0].tolist(), 1.0], strict=True)), 1)
    columns = dict(zip(names, X.T, strict=True))
    alone = model.predict_proba_many(columns)
    together = model.set_params(n_jobs=3).predict_proba_many(columns)
    np.testing.assert_array_equal(list(together.values()), list(alone.values()))


@pytest.mark.parametrize("build", [DynamicModelTreeClassifier, DynamicModelTreeClassifier.paper])
def test_models_in_threads_that_call_for_help_learn_the_same_bits(build):
    def walk(seed, n_jobs=2):
        model = build(n_jobs=n_jobs)
        for X, y in hyperplane(2000, seed=seed, n_features=30, batch_rows=1000):
            model.partial_fit(X, y).predict(X)
        return stored.to_bytes(model)

    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(walk, range(8)))
    assert together == [walk(seed, n_jobs=None) for seed in range(8)]


# ---------------------------------------------------------------------- how many
COUNT_THREADS = """
import os, sys, threading, time
from driftree import DynamicModelTreeClassifier
from driftree.streams import hyperplane, sea

def count():
    return len(os.listdir("/proc/self/task"))

def learn(batches, n_jobs):
    model = DynamicModelTreeClassifier(n_jobs=n_jobs)
    for X, y in batches:
        model.partial_fit(X, y).predict(X)

small = list(sea(2000, seed=1, batch_rows=20))
large = list(hyperplane(3000, seed=1, n_features=50, batch_rows=1000))
before = count()
learn(small, 8)
print(count() - before)
threads = [threading.Thread(target=learn, args=(large, 3)) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
for _ in range(200):  # a thread that has ended may still be listed
    if count() - before == 2:
        break
    time.sleep(0.05)
print(count() - before)
"""


@needs_tasks
def test_small_steps_need_no_threads_and_models_share_them():
    command = [sys.executable, "-c", COUNT_THREADS]
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert (run.stdout.split(), run.stderr) == (["0", "2"], "")


# ---------------------------------------------------------------------- copies
def test_n_jobs_is_a_parameter_but_no_part_of_a_file(tmp_path):
    X, y, _ = draw(500, 3)
    model = DynamicModelTreeClassifier(n_jobs=2).partial_fit(X, y)
    assert clone(model).n_jobs == model.clone().n_jobs == 2
    assert pickle.loads(pickle.dumps(model)).n_jobs == 2
    model.save(tmp_path / "model.dmt")
    loaded = driftree.load(tmp_path / "model.dmt")
    assert loaded.n_jobs is None
    loaded.set_params(n_jobs=-1).partial_fit(X, y)
    assert stored.to_bytes(loaded) == stored.to_bytes(model.partial_fit(X, y))


def test_a_pickle_of_before_has_one_thread():
    X, y, _ = draw(50, 3)
    state = DynamicModelTreeClassifier().partial_fit(X, y).__getstate__()
    del state["n_jobs"]
    model = DynamicModelTreeClassifier.__new__(DynamicModelTreeClassifier)
    model.__setstate__(state)
    assert model.partial_fit(X, y).get_params()["n_jobs"] is None


def test_a_file_says_nothing_of_threads():
    contents, arrays = driftree.learn.storage.models.pack(DynamicModelTreeClassifier(n_jobs=2))
    assert "n_jobs" not in contents["parameters"]
    contents["parameters"]["n_jobs"] = 8
    with pytest.raises(ModelFileError, match="n_jobs"):
        driftree.learn.storage.models.unpack(
            contents, arrays, {"DynamicModelTreeClassifier": DynamicModelTreeClassifier}
        )


# ---------------------------------------------------------------------- fork
@needs_fork
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_makes_threads_of_its_own():
    X, y, _ = draw(2000, 40)
    model = DynamicModelTreeClassifier(n_jobs=3).partial_fit(X, y)
    expected, stop = model.predict_proba(X).tobytes(), threading.Event()

    def predict():
        while not stop.is_set():
            model.predict_proba(X)

    thread = threading.Thread(target=predict)
    thread.start()
    try:
        for _ in range(10):
            child = os.fork()
            if child == 0:
                signal.alarm(60)  # a child that hangs is killed
                is_same = model.predict_proba(X).tobytes() == expected
                os._exit(0 if is_same and model.partial_fit(X, y).n_rows_seen_ == 4000 else 1)
            assert os.waitpid(child, 0)[1] == 0
    finally:
        stop.set()
        thread.join()
