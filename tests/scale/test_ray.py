"""Keys spread over Ray actors, which may be killed: nothing is lost, and nothing learnt twice."""

import contextlib
import os
import signal

import numpy as np
import pytest

from driftree.scale import KeyedModels
from key_rows import draw_rows, learnt, make, to_columns

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install ray")

from driftree.scale.ray import RayKeyedModels, _shard_of  # noqa: E402

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # Ray's own
]


@pytest.fixture(scope="module", autouse=True)
def cluster():
    os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112 (else a busy machine starves them)
    ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    yield
    ray.shutdown()


def open_models(path, **options):
    return RayKeyedModels(make, "key", path=path, **({"shards": 2, "every": 200} | options))


def test_shards_know_what_one_process_knows_of_the_same_keys(tmp_path):
    rows, labels = draw_rows(600)
    alone = [KeyedModels(make, "key") for _ in range(2)]
    for x, y in zip(rows, labels, strict=True):
        alone[_shard_of(x["key"], 2)].learn_one(x, y)
    with open_models(tmp_path) as models:
        for start in range(0, 600, 150):
            part = slice(start, start + 150)
            models.learn_many(to_columns(rows[part]), labels[part])
        assert learnt_by_keys(models) == {
            name: value for one in alone for name, value in learnt(one).items() if name != "parent"
        }
        answers = models.predict_many(to_columns(rows))
        assert answers.tolist() == [alone[_shard_of(x["key"], 2)].predict_one(x) for x in rows]
        assert models.predict_one(rows[0]) == answers[0]
        assert models.summary().n_rows == 600
        assert models.summary(most=3).worst == tuple(
            sorted(models.summary(most=99).worst, key=lambda record: -record.loss)[:3]
        )
        assert models.explain_one(rows[0]).prediction == answers[0]
        assert models.predict_many(rows[:1]).tolist() == [answers[0]]  # of one shard only
        assert models.predict_many([]).tolist() == []
        assert models.events("k1") == []
        assert models.drifts("k1") == []
        assert models.position == 600


def learnt_by_keys(models):
    found = learnt(Readable(models))
    return {name: value for name, value in found.items() if name != "parent"}


class Readable:
    """What `learnt` asks for."""

    parent = None

    def __init__(self, models):
        self.models = models
        self.record = models.record

    def __iter__(self):
        return iter(self.models)

    def __getitem__(self, key):
        return self.models[key]


def test_a_killed_actor_comes_back_with_nothing_lost_and_nothing_learnt_twice(tmp_path):
    rows, labels = draw_rows(1000)
    with open_models(tmp_path / "whole") as whole, open_models(tmp_path / "killed") as killed:
        for start in range(0, 1000, 50):
            part = slice(start, start + 50)
            whole.learn_many(to_columns(rows[part]), labels[part])
            killed.learn_many(to_columns(rows[part]), labels[part])
            if start in (250, 500, 550, 850):
                kill(killed, start // 50 % 2)
        killed.commit()
        assert learnt_by_keys(killed) == learnt_by_keys(whole)
        assert killed.summary().n_rows == 1000


def kill(models, i):
    """End the process of a shard, while it learns."""
    actor = models._actors[i]
    pid = ray.get(actor.pid.remote())
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def test_a_killed_driver_goes_on_where_all_shards_have_committed(tmp_path):
    rows, labels = draw_rows(700)
    with open_models(tmp_path, every=10**6) as models:
        models.learn_many(to_columns(rows[:300]), labels[:300])
        models.commit()
        models.learn_many(to_columns(rows[300:500]), labels[300:500])
        ray.get(models._actors[0].commit.remote(models._sent[0], 500))  # one of two has committed
    with open_models(tmp_path, every=10**6) as again, open_models(tmp_path / "whole") as whole:
        assert again.position == 300
        for start in (300, 450, 600):  # other batches than before
            part = slice(start, min(start + 150, 700))
            again.learn_many(to_columns(rows[part]), labels[part])
        whole.learn_many(to_columns(rows), labels)
        assert learnt_by_keys(again) == learnt_by_keys(whole)


def test_any_batch_is_learnt_as_in_one_process(tmp_path):
    rng = np.random.default_rng(1)
    X = np.column_stack([rng.integers(0, 9, 200), rng.normal(size=(200, 2))])
    y = [("a", 1) if above else "no" for above in X[:, 1] > 0]
    big = 2**60 + 1  # not a float
    words = [{"key": big + i % 5, f"word {i % 11}": 1, f"word {i % 3}": 2} for i in range(200)]
    for key, batch in ((0, X), ("key", words), ("key", tuple(words))):
        alone = [KeyedModels(make, key) for _ in range(2)]
        keys = batch[:, 0].astype(int).tolist() if key == 0 else [x["key"] for x in words]
        for i, own in enumerate(alone):
            rows = [j for j in range(200) if _shard_of(keys[j], 2) == i]
            own.learn_many(X[rows] if key == 0 else [words[j] for j in rows], [y[j] for j in rows])
        folder = tmp_path / f"{key} {type(batch).__name__}"
        with RayKeyedModels(make, key, path=folder, shards=2) as models:
            models.learn_many(batch[:70], y[:70])
            models.learn_many(batch[70:], y[70:])
            assert learnt_by_keys(models) == {
                name: value
                for own in alone
                for name, value in learnt(own).items()
                if name != "parent"
            }
            answers = models.predict_many(batch)
            assert {*answers.tolist()} == {("a", 1), "no"}


def test_what_is_refused_as_a_whole_does_not_stop_the_shards(tmp_path):
    with open_models(tmp_path) as models:
        models.learn_many({"key": [1, 2, 3, 4], "a": [1.0, 2.0, 3.0, 4.0]}, list("abab"))
        for keys, labels in (
            (["x", True], ["a", "b"]),
            ([1, None], ["a", "b"]),
            ([1.0, np.nan], ["a", "b"]),
            ([1, [2]], ["a", "b"]),
            ([1, 2], ["a", None]),
            ([1, 2], [1.0, np.nan]),
            ([1, 2], ["a"]),
        ):
            with pytest.raises((TypeError, ValueError)):
                models.learn_many({"key": keys, "a": [1.0, 2.0]}, labels)
        with pytest.raises(ValueError, match="no key"):
            models.predict_one({"a": 1.0})
        models.learn_many({"key": [1, 2], "a": [1.0, 2.0]}, [b"bytes", 0.5])
        models.learn_many([], [])
        models.commit()
        assert models.summary().n_rows == models.position == 6
    for call in (lambda: models.predict_one({"key": 1, "a": 1.0}), models.commit, models.summary):
        with pytest.raises(ValueError, match="the models are closed"):
            call()


def test_refused_rows_and_wrong_folders_are_named(tmp_path):
    rows, labels = draw_rows(20)
    columns = to_columns(rows)
    columns["a"][3] = np.inf
    with open_models(tmp_path) as models:
        models.learn_many(columns, labels)
        with pytest.raises(ValueError, match=r"1 of .* rows were refused.* row 3 of the stream"):
            models.commit()
        with pytest.raises(ValueError, match="no column 'key'"):
            models.learn_many({"a": [1.0]}, ["yes"])
        assert models.summary().n_rows == 19
    with pytest.raises(ValueError, match="holds 2 shards, got shards=3"):
        open_models(tmp_path, shards=3)
