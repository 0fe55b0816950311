"""Test, then train."""

import io
import pickle
from typing import get_args

import numpy as np
import pytest
from river import datasets, linear_model, multiclass, preprocessing
from river.datasets import synth
from sklearn.linear_model import SGDClassifier, SGDRegressor
from sklearn.naive_bayes import GaussianNB

from driftree import DynamicModelTreeClassifier, DynamicModelTreeRegressor, FIMTDDRegressor
from driftree.evaluate import (
    LEARNERS,
    Evaluation,
    learners_for,
    make_learner,
    prequential,
    score,
    score_numbers,
    title_of,
)
from driftree.evaluate.scores import Calibration
from driftree.streams import agrawal, open_stream, sea
from driftree.streams.rows import Rows
from driftree.streams.stream import Task
from repeatable import figures


class Recorder:
    """A River classifier that writes down what happens to it."""

    def __init__(self):
        self.log = []

    def predict_proba_one(self, x):
        self.log.append(("predict", x["x0"]))
        return {0: 0.25, 1: 0.75}

    def predict_one(self, x):
        self.log.append(("predict", x["x0"]))
        return 0.25

    def learn_one(self, x, y):
        self.log.append(("learn", x["x0"]))


every_task = pytest.mark.parametrize("task", ["classification", "regression"])


def numbered(n_batches, batch_rows):
    """Rows that carry their number."""
    for start in range(0, n_batches * batch_rows, batch_rows):
        rows = np.arange(start, start + batch_rows, dtype=float)
        yield rows[:, None], (rows % 2).astype(int)


def happened(log, what):
    return [int(row) for kind, row in log if kind == what]


def test_a_batch_is_predicted_before_it_is_learnt_and_the_first_only_trains():
    model = Recorder()
    records = list(prequential(model, numbered(3, 2)))
    kinds = [(kind, int(row)) for kind, row in model.log]
    first = [("learn", 0), ("learn", 1)]
    second = [("predict", 2), ("predict", 3), ("learn", 2), ("learn", 3)]
    third = [("predict", 4), ("predict", 5), ("learn", 4), ("learn", 5)]
    assert kinds == first + second + third
    assert [(record.step, record.n_rows) for record in records] == [(1, 4), (2, 6)]


def test_without_pretraining_the_first_batch_is_tested():
    model = Recorder()
    records = list(prequential(model, numbered(3, 2), pretrain=False))
    assert happened(model.log, "predict") == list(range(6))
    assert [(record.step, record.n_rows) for record in records] == [(1, 2), (2, 4), (3, 6)]


def test_row_by_row_each_row_is_learnt_before_the_next_is_predicted():
    model = Recorder()
    list(prequential(model, numbered(2, 3), step_rows=1))
    after_first = [(kind, int(row)) for kind, row in model.log[3:]]
    assert after_first == [(kind, row) for row in (3, 4, 5) for kind in ("predict", "learn")]


@pytest.mark.parametrize("delay", [0, 1, 2, 3, 5, 100])
@pytest.mark.parametrize("step_rows", [None, 1, 2])
@every_task
def test_labels_that_come_later_are_learnt_later(delay, step_rows, task):
    model = Recorder()
    list(prequential(model, numbered(5, 4), delay=delay, step_rows=step_rows, task=task))
    learnt_before = {}
    n_learnt = 0
    for kind, row in model.log:
        if kind == "learn":
            n_learnt += 1
        else:
            learnt_before[int(row)] = n_learnt
    pretrained = 4
    step = step_rows or 4
    for row, n_known in learnt_before.items():
        start_of_step = row - (row - 4) % step
        assert n_known == max(pretrained, start_of_step - delay)
    assert happened(model.log, "learn") == list(range(max(pretrained, 20 - delay)))


def test_scores_are_those_of_the_predictions_made():
    stream = list(agrawal(6000, function=2))
    model, twin = make_learner("dmt"), make_learner("dmt")
    records = list(prequential(model, stream))
    twin.partial_fit(*stream[0])
    calibration = Calibration()
    for record, (X, y) in zip(records, stream[1:], strict=True):
        proba = twin.predict_proba(X)
        predicted = proba.argmax(axis=1)
        calibration.add(predicted == y, proba.max(axis=1))
        scores = score(y, predicted, proba[np.arange(len(y)), y], calibration)
        assert [getattr(record, name) for name in scores._fields] == pytest.approx(list(scores))
        twin.partial_fit(X, y)
        assert record.n_splits == twin.n_splits_
        assert record.memory == twin.memory_usage()
        assert record.predict_seconds >= 0 < record.learn_seconds


@pytest.mark.parametrize("name", LEARNERS)
def test_every_learner_by_name_is_evaluated(name):
    records = list(prequential(name, sea(3000)))
    assert [record.learner for record in records] == [name] * 2
    floor = {"majority": 0.3, "no-change": 0.1}.get(name, 0.55)
    assert records[-1].f1 > floor
    assert records[-1].n_splits >= 0
    assert records[0].memory > 0


def test_side_by_side_is_the_same_as_one_by_one():
    names = ["dmt", "vfdt-nba", "arf3", "majority"]
    together = list(prequential({name: name for name in names}, sea(4000)))
    assert [record.learner for record in together[:4]] == names
    for name in names:
        alone = list(prequential(name, sea(4000)))
        assert figures(r for r in together if r.learner == name) == figures(alone)


def test_every_way_of_holding_rows_gives_the_same_records():
    pandas, polars, pyarrow = map(pytest.importorskip, ("pandas", "polars", "pyarrow"))
    stream = list(sea(3000))
    names = ["x0", "x1", "x2"]
    tables = [dict(zip(names, X.T, strict=True)) for X, _ in stream]
    expected = figures(prequential({"dmt": "dmt", "vfdt-mc": "vfdt-mc"}, stream))
    for make in (dict, pandas.DataFrame, polars.DataFrame, pyarrow.table):
        batches = [(make(table), y) for table, (_, y) in zip(tables, stream, strict=True)]
        assert figures(prequential({"dmt": "dmt", "vfdt-mc": "vfdt-mc"}, batches)) == expected


def test_rows_are_opened_as_a_stream():
    """Dicts and labels, as River gives them: a data set, a list, a generator."""
    given = list(datasets.Phishing())
    expected = figures(prequential("dmt", open_stream(given, batch=1000)))
    assert expected
    assert figures(prequential("dmt", given)) == expected
    assert figures(prequential("dmt", (row for row in given))) == expected
    own = figures(prequential("dmt", datasets.Phishing()))  # knows its length: batches of 100
    assert own == figures(prequential("dmt", open_stream(given, batch=100)))


def test_no_batch_is_lost_if_a_stream_has_one_iterator_only():
    class Queue:
        def __init__(self):
            self.batches = sea(3000)

        def __iter__(self):
            return self.batches

    expected = figures(prequential("dmt", list(sea(3000))))
    assert expected
    assert figures(prequential("dmt", Queue())) == expected


def test_sparse_rows_stay_dicts():
    """Words that a row lacks are 0, as for `learn_one`, and not missing in a table of all."""
    rng = np.random.default_rng(1)
    words = rng.integers(0, 1000, (400, 6))
    rows = [{f"w{word}": 1 for word in row} for row in words.tolist()]
    labels = (words.sum(axis=1) > 3000).astype(int).tolist()
    stream = open_stream(list(zip(rows, labels, strict=True)), batch=100)
    model, again = DynamicModelTreeClassifier(), DynamicModelTreeClassifier()
    line = linear_model.LogisticRegression()
    records = list(prequential({"dmt": model, "line": line}, stream))
    assert [record.learner for record in records] == ["dmt", "line"] * 3
    for i in range(0, 400, 100):
        again.learn_many(rows[i : i + 100], labels[i : i + 100])
    assert model._tree.parameters.absent == "zero"
    assert model.predict_proba_one(rows[0]) == again.predict_proba_one(rows[0])
    assert stream.feature_names == list(dict.fromkeys(name for row in rows for name in row))


def test_columns_may_come_and_go():
    pandas, polars = map(pytest.importorskip, ("pandas", "polars"))
    rng = np.random.default_rng(1)
    batches = []
    for names in (["a", "b"], ["a"], ["b", "c", "a"], ["c"]):
        X = {name: rng.normal(size=400) for name in names}
        batches.append((X, (next(iter(X.values())) > 0).astype(int)))
    expected = figures(prequential({"dmt": "dmt", "fimtdd": "fimtdd"}, batches))
    assert len(expected) == 6
    for make in (pandas.DataFrame, polars.DataFrame):
        frames = [(make(X), y) for X, y in batches]
        assert figures(prequential({"dmt": "dmt", "fimtdd": "fimtdd"}, frames)) == expected


@pytest.mark.parametrize("name", ["dmt", "fimtdd", "vfdt-mc"])
def test_rivers_data_sets_and_generators_reach_every_learner(name):
    for source in (datasets.Phishing(), synth.SEA(seed=1), synth.STAGGER(seed=1)):
        records = list(prequential(name, open_stream(source, batch=200, n_rows=1000)))
        assert len(records) == 4
        assert records[-1].accuracy > 0.6


def test_text_and_missing_values_reach_every_learner():
    rng = np.random.default_rng(1)
    batches = []
    for _ in range(4):
        car = rng.choice(np.array(["van", "bus", None], dtype=object), size=200)
        age = np.where(rng.random(200) < 0.1, np.nan, rng.uniform(20, 80, 200))
        batches.append(({"car": car, "age": age}, np.where(car == "van", "yes", "no")))
    learners = {name: name for name in LEARNERS if name not in ("arf3", "levbag3")}
    last = {record.learner: record for record in prequential(learners, batches)}
    assert last["dmt"].accuracy == 1.0
    assert last["vfdt-nba"].accuracy > 0.9
    assert last.keys() == learners.keys()


def test_learners_of_both_libraries():
    models = {
        "linear": SGDClassifier(loss="log_loss", random_state=1),
        "hinge": SGDClassifier(random_state=1),
        "bayes": GaussianNB(),
        "river": preprocessing.StandardScaler() | linear_model.LogisticRegression(),
    }
    stream = list(sea(4000))
    last = {r.learner: r for r in prequential(models, stream, classes=[0, 1])}
    assert all(record.accuracy > 0.75 for record in last.values())
    assert np.isnan(last["hinge"].log_loss)  # it gives no probabilities
    assert (last["linear"].n_splits, last["linear"].n_paper_splits) == (0, 1)
    assert last["bayes"].n_splits is None


def test_a_learner_has_one_title():
    titles = [
        {name: one.title for name, one in learners_for(task).items()} for task in get_args(Task)
    ]
    for own in titles:
        assert len(set(own.values())) == len(own)
        assert {name: title_of(name) for name in own} == own


def test_an_untaught_learner_says_nothing():
    for name in ("dmt", "vfdt-mc"):
        record = next(prequential(name, sea(500, batch_rows=100), pretrain=False))
        assert (record.accuracy, record.f1) == (0.0, 0.0)
        assert record.log_loss == pytest.approx(np.log(2))


@pytest.mark.parametrize("name", ["dmt", "vfdt-mc"])
@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (np.array([0.0, np.nan]), "label of row 1"),
        (np.array(["a", None], dtype=object), "label of row 1 is None"),
        (np.array([0.5, 1.25]), "continuous"),
    ],
)
def test_labels_that_are_none_are_refused_for_every_learner(name, wrong, words):
    evaluation = Evaluation(name)
    evaluation.take(np.zeros((2, 1)), np.array([0, 1]))
    with pytest.raises(ValueError, match="rows 2 to 3 of the stream") as caught:
        evaluation.take(np.zeros((2, 1)), wrong)
    assert words in str(caught.value)


def test_a_label_never_seen_before_is_a_miss():
    X = np.zeros((4, 1))
    batches = [(X, np.array(["a", "b", "a", "b"])), (X, np.array(["c", "c", "c", "c"]))]
    for name in ("dmt", "vfdt-mc"):
        (record,) = prequential(name, batches)
        assert record.accuracy == 0
        assert record.log_loss > 30


def test_an_evaluation_goes_on_from_a_pickle():
    stream = list(sea(6000))
    names = {"dmt": "dmt", "levbag3": "levbag3"}
    whole = list(prequential(names, stream, delay=1500))
    evaluation = Evaluation(names, delay=1500)
    records = [record for X, y in stream[:3] for record in evaluation.take(X, y)]
    evaluation = pickle.loads(pickle.dumps(evaluation))
    records += [record for X, y in stream[3:] for record in evaluation.take(X, y)]
    assert figures(records) == figures(whole)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"delay": -1}, "delay must be at least 0"),
        ({"step_rows": 0}, "step_rows must be at least 1"),
        ({"model": {}}, "no learner"),
        ({"model": "dmtt"}, "did you mean dmt"),
        ({"model": "vfdt-mc", "task": "regression"}, "no learner 'vfdt-mc'"),
        ({"task": "ranking"}, "task must be"),
        ({"task": "regression", "classes": [1, 2]}, "classes are for classification"),
        (
            {"model": FIMTDDRegressor(), "task": "classification"},
            "FIMTDDRegressor is for regression, but the task is classification",
        ),
        (
            {"model": {"a": SGDClassifier(), "b": linear_model.LinearRegression()}},
            "b is for regression, but the task is classification, as a says",
        ),
    ],
)
def test_mistakes_are_named(arguments, words):
    with pytest.raises(ValueError, match=words):
        Evaluation(**{"model": "dmt", **arguments})


def test_what_cannot_learn_is_named():
    with pytest.raises(TypeError, match="partial_fit"):
        Evaluation({"none": object()})
    with pytest.raises(ValueError, match="3 rows, but y"):
        Evaluation("dmt").take(np.zeros((3, 1)), [1, 2])


def test_rows_are_cut_in_any_form():
    pandas = pytest.importorskip("pandas")
    X = {"a": np.arange(4.0), "b": np.array(["x", None, "y", "z"], dtype=object)}
    for table in (X, pandas.DataFrame(X)):
        rows = Rows(table, [0, 1, 2, 3])
        part = rows[1:3]
        assert (len(part), part.names, part.labels) == (2, ["a", "b"], [1, 2])
        assert part.dicts == [{"a": 1.0}, {"a": 2.0, "b": "y"}] == rows.dicts[1:3]
        assert rows[1:3].dicts == part.dicts


def test_ours_takes_classes_beforehand():
    model = DynamicModelTreeClassifier()
    list(prequential(model, sea(2000), classes=[0, 1, 2]))
    assert model.classes_.tolist() == [0, 1, 2]


# ---------------------------------------------------------------------- numbers
def lines(n_rows=3000, batch_rows=500, seed=1):
    """Two lines that meet in an edge, in batches."""
    X = np.random.default_rng(seed).uniform(-1, 1, (n_rows, 2))
    y = 200 + 30 * np.abs(X[:, 0]) + 5 * X[:, 1]
    return open_stream((X, y), batch=batch_rows, task="regression")


@pytest.mark.parametrize("step_rows", [None, 1, 50])
def test_scores_of_numbers_are_those_of_the_predictions_made(step_rows):
    model, twin, stream = FIMTDDRegressor(), FIMTDDRegressor(), list(lines())
    records = list(prequential(model, stream, step_rows=step_rows))
    twin.partial_fit(*stream[0])
    known = [stream[0][1]]
    for record, (X, y) in zip(records, stream[1:], strict=True):
        size = step_rows or len(y)
        predicted = []
        for start in range(0, len(y), size):
            predicted.append(twin.predict(X[start : start + size]))
            twin.partial_fit(X[start : start + size], y[start : start + size])
        known.append(y)
        scores = score_numbers(y, np.concatenate(predicted), np.concatenate(known).mean())
        assert (record.mae, record.rmse, record.r2) == pytest.approx(scores)
        assert np.isnan(record.f1)
        assert (record.n_splits, record.n_leaves) == (twin.n_splits_, twin.n_leaves_)


@pytest.mark.parametrize("name", learners_for("regression"))
@pytest.mark.parametrize("step_rows", [None, 1])
def test_every_learner_of_numbers_by_name_is_evaluated(name, step_rows):
    records = list(prequential(name, lines(), task="regression", step_rows=step_rows))
    assert [record.task for record in records] == ["regression"] * 5
    assert records[-1].mae < {"mean": 10, "no-change": 14}.get(name, 9)
    assert records[-1].n_splits >= 0
    assert records[0].memory > 0


def test_learners_of_numbers_of_both_libraries_say_what_they_are():
    models = {
        "dmt": "dmt",
        "linear": SGDRegressor(random_state=1),
        "river": preprocessing.StandardScaler() | linear_model.LinearRegression(),
        "scaled": preprocessing.TargetStandardScaler(regressor=linear_model.LinearRegression()),
        "ours": DynamicModelTreeRegressor(),
    }
    evaluation = Evaluation(models)
    assert evaluation.task == "regression"
    last = {r.learner: r for X, y in lines() for r in evaluation.take(X, y)}
    assert max(record.mae for record in last.values()) < 12
    assert repr(evaluation.learners["dmt"]) == "DynamicModelTreeRegressor()"


def test_text_constants_and_missing_values_reach_every_learner_of_numbers():
    rng = np.random.default_rng(1)
    batches = []
    for _ in range(4):
        car = rng.choice(np.array(["van", "bus", None], dtype=object), size=200)
        age = np.where(rng.random(200) < 0.1, np.nan, rng.uniform(20, 80, 200))
        X = {"car": car, "age": age, "same": np.ones(200), "rare": (rng.random(200) < 0.01) * 1e9}
        batches.append((X, np.where(car == "van", 300.0, 100.0) + np.nan_to_num(age)))
    learners = {name: name for name in learners_for("regression")}
    for step_rows in (None, 1):
        records = prequential(learners, batches, task="regression", step_rows=step_rows)
        last = {record.learner: record for record in records}
        assert last.keys() == learners.keys()
        assert last["dmt"].mae < 15
        assert max(record.mae for record in last.values()) < 200  # none diverges


def test_an_untaught_learner_of_numbers_says_0():
    for name in ("dmt", "htr"):
        record = next(prequential(name, lines(), task="regression", pretrain=False))
        assert record.mae == pytest.approx(next(iter(lines()))[1].mean())


@pytest.mark.parametrize("name", ["dmt", "htr"])
@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (np.array([0.0, np.nan]), "target of row 1 is nan"),
        (np.array([np.inf, 1.0]), "target of row 0 is inf"),
        (np.array(["a", "b"]), "must hold numbers, but the target of row 0 is 'a'"),
    ],
)
def test_targets_that_are_no_numbers_are_refused_for_every_learner(name, wrong, words):
    evaluation = Evaluation(name, task="regression")
    evaluation.take(np.zeros((2, 1)), np.array([0.5, 1.5]))
    with pytest.raises(ValueError, match="targets of rows 2 to 3 of the stream") as caught:
        evaluation.take(np.zeros((2, 1)), wrong)
    assert words in str(caught.value)


def test_an_evaluation_of_numbers_goes_on_from_a_pickle():
    stream, names = list(lines()), {"dmt": "dmt", "htr": "htr"}
    whole = list(prequential(names, stream, delay=700, task="regression"))
    evaluation = Evaluation(names, delay=700, task="regression")
    records = [record for X, y in stream[:3] for record in evaluation.take(X, y)]
    evaluation = pickle.loads(pickle.dumps(evaluation))
    records += [record for X, y in stream[3:] for record in evaluation.take(X, y)]
    assert figures(records) == figures(whole)


@pytest.mark.parametrize("labels", [[True, "True"], [1, "1"]])
def test_labels_of_several_types_stay_different(labels):
    X = np.arange(40.0).reshape(-1, 1)
    batch = X, [labels[i % 2] for i in range(40)]
    record = list(prequential(model := DynamicModelTreeClassifier(), [batch] * 3))[-1]
    assert model.classes_.tolist() == labels
    assert len(record.confusion) == 2


def test_callbacks_while_nothing_is_learnt():
    events = []
    options = {"delay": 10**6, "pretrain": False, "on_change": events.append}
    records = list(prequential("dmt", sea(300, batch_rows=100), on_drift=events.append, **options))
    assert [record.accuracy for record in records] == [0, 0, 0]
    assert not events


@pytest.mark.parametrize("kind", [io.StringIO, lambda text: io.BytesIO(text.encode())])
def test_an_open_file_is_opened_as_a_stream(kind):
    lines = [f"{i % 7},{'yes' if i % 7 > 3 else 'no'}\n" for i in range(3000)]
    records = prequential("dmt", kind("a,target\n" + "".join(lines)))
    assert [record.n_rows for record in records] == [2000, 3000]


class Diverged:
    """A classifier whose probabilities are NaN, except those of the first row."""

    classes_ = np.array([0, 1])

    def partial_fit(self, X, y):
        return self

    def learn_one(self, x, y):
        pass

    def predict_proba(self, X):
        shares = np.full((len(X), 2), np.nan)
        shares[0] = 0.25, 0.75
        return shares

    def predict_proba_one(self, x):
        return {0: 0.25, 1: 0.75} if x["x0"] == 0 else {0: np.nan, 1: np.nan}


@pytest.mark.parametrize("step_rows", [None, 1])
def test_probabilities_that_are_not_numbers_are_no_prediction(step_rows):
    batch = np.arange(4.0).reshape(-1, 1), np.array([1, 0, 0, 1])
    *_, record = prequential(Diverged(), [batch] * 2, step_rows=step_rows)
    assert record.confusion == {"1": {"1": 1, "(nothing)": 1}, "0": {"(nothing)": 2}}
    assert record.log_loss == pytest.approx(-np.log([0.75, 0.5, 0.5, 0.5]).mean())
    assert record.ece == pytest.approx((0.25 + 3 * 0.5) / 4)


@pytest.mark.parametrize("step_rows", [None, 1])
def test_river_classifiers_without_probabilities(step_rows):
    learner = preprocessing.StandardScaler() | multiclass.OneVsOneClassifier(
        linear_model.LogisticRegression()
    )
    *_, record = prequential(learner, sea(1000, batch_rows=250), step_rows=step_rows)
    assert record.accuracy > 0.7
    assert np.isnan(record.log_loss)
