"""Quality: the figures are scikit-learn's, whatever the batches; a checkpoint keeps them."""

import json

import numpy as np
import pytest
from river import base, metrics
from sklearn.metrics import f1_score, precision_recall_fscore_support, roc_auc_score

from driftree.evaluate import (
    Evaluation,
    Quality,
    label_blocks,
    prequential,
    read_records,
    summarise,
)
from driftree.evaluate.quality import (
    MOST_ENTRIES,
    MOST_LABELS,
    OTHERS,
    name_labels,
    sign_test,
    write_labels,
)
from driftree.evaluate.records import write_records
from driftree.streams import sea


def draw(n_labels, n=5000):
    rng = np.random.default_rng(1)
    truth = rng.integers(0, n_labels, n)
    predicted = np.where(rng.random(n) < 0.7, truth, rng.integers(0, n_labels, n))
    return truth, predicted, rng.random(n)


@pytest.mark.parametrize("n_labels", [2, 4])
def test_figures_are_those_of_scikit_learn(n_labels):
    truth, predicted, probability = draw(n_labels)
    quality = Quality()
    for rows in np.array_split(np.arange(5000), 37):
        quality.add(truth[rows], predicted[rows], probability[rows])
    precision, recall, *_ = precision_recall_fscore_support(truth, predicted)
    found = quality.labels()
    np.testing.assert_allclose([one.precision for one in found], precision)
    np.testing.assert_allclose([one.recall for one in found], recall)
    assert quality.macro_f1 == pytest.approx(f1_score(truth, predicted, average="macro"))
    assert quality.majority == np.bincount(truth).max() / 5000
    if n_labels == 2:
        of_one = np.where(truth == 1, probability, 1 - probability)
        assert quality.auc == pytest.approx(roc_auc_score(truth, of_one), abs=1e-3)
    else:
        assert np.isnan(quality.auc)
    json.dumps(quality.to_dict(list("abcd")), allow_nan=False)


def test_labels_that_come_late_and_rows_without_a_prediction():
    quality = Quality()
    quality.add(np.array([0, 0]), np.array([-1, 0]))
    quality.add(np.array([2, 1]), np.array([2, 0]))
    assert quality.confusion.tolist() == [[1, 0, 0, 1], [1, 0, 0, 0], [0, 0, 1, 0]]
    assert [one.recall for one in quality.labels()] == [0.5, 0, 1]


def test_the_label_mix_is_bounded_and_loses_no_row():
    quality = Quality()
    for i in range(3000):
        quality.add(np.array([i // 1000, 0]), np.array([0, 0]))
    assert len(quality.mix) <= MOST_ENTRIES
    assert sum(counts.sum() for _, counts in quality.mix) == 6000
    assert [n_rows for n_rows, _ in quality.mix] == sorted({n for n, _ in quality.mix})
    assert quality.mix[0][1][1:].sum() == 0
    assert quality.mix[-1][1][2] == quality.mix[-1][1][0]


def test_a_checkpoint_keeps_it():
    truth, predicted, probability = draw(2)
    quality = Quality()
    quality.add(truth[:2500], predicted[:2500], probability[:2500])
    again = Quality.restored(json.loads(json.dumps(quality.knowledge())))
    for one in (quality, again):
        one.add(truth[2500:], predicted[2500:], probability[2500:])
    assert again.to_dict() == quality.to_dict()


def test_rivers_metrics_see_every_row():
    own = [metrics.Accuracy(), metrics.MacroF1(), metrics.LogLoss()]
    evaluation = Evaluation("dmt", metrics=own, step_rows=100)
    records = [record for X, y in sea(5000) for record in evaluation.take(X, y)]
    assert own[0].get() == pytest.approx(np.mean([record.accuracy for record in records]))
    assert own[1].get() == pytest.approx(evaluation.quality["dmt"].macro_f1)
    assert own[2].get() == pytest.approx(np.mean([record.log_loss for record in records]), rel=1e-6)
    with pytest.raises(ValueError, match="no learner 'efdt'"):
        next(prequential("dmt", sea(2000), metrics={"efdt": metrics.Accuracy()}))
    with pytest.raises(TypeError, match=r"must be River's.*'accuracy'"):
        next(prequential("dmt", sea(2000), metrics=["accuracy"]))


@pytest.mark.parametrize("learner", ["dmt", "vfdt-mc", "no-change"])
def test_rivers_metrics_skip_rows_without_a_prediction(learner):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(300, 2))
    y = np.where(X[:, 0] > 0, "yes", "no")
    own = [metrics.Accuracy(), metrics.ConfusionMatrix(), metrics.LogLoss()]
    given = {"pretrain": False, "metrics": own}
    first, second = prequential(learner, [(X[:100], y[:100]), (X[100:], y[100:])], **given)
    assert first.accuracy == 0  # nothing was learnt yet
    assert own[0].get() == pytest.approx(second.accuracy)
    assert own[1].total_weight == 200
    assert {*own[1].classes} == {"yes", "no"}
    assert own[2].get() > 0


def test_rivers_metrics_count_predicted_labels_that_no_row_has_had():
    class Stubborn(base.Classifier):
        def learn_one(self, x, y):
            pass

        def predict_one(self, x):
            return "perhaps" if x["x0"] > 0 else None

    X = np.array([[1.0], [1.0], [-1.0], [1.0]])
    own = [metrics.Accuracy(), metrics.ConfusionMatrix()]
    batches = [(X, np.array(["yes", "no", "no", "yes"]))]
    (record,) = prequential(Stubborn(), batches, pretrain=False, metrics=own)
    assert record.accuracy == 0
    assert own[0].get() == 0
    assert own[1].total_weight == 3
    assert own[1]["yes"]["perhaps"] == 2


def test_the_sign_test_is_scipys():
    from scipy.stats import binomtest

    for n_better, n_worse in ((9, 1), (0, 0), (40, 60), (700, 800)):
        n = n_better + n_worse
        expected = binomtest(n_better, n).pvalue if n else 1.0
        assert sign_test(n_better, n_worse) == pytest.approx(expected, rel=0.05)


# ---------------------------------------------------------------------- labels over time
@pytest.mark.parametrize("n_labels", [2, 14])
def test_records_know_which_labels_came_and_were_found(n_labels, tmp_path):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(3000, 2))
    y = np.array([f"label {k}" for k in range(n_labels)])[np.arange(3000) % n_labels]
    evaluation = Evaluation("dmt")
    records = [
        record
        for rows in np.array_split(np.arange(3000), 30)
        for record in evaluation.take(X[rows], y[rows])
    ]
    path = tmp_path / "records.csv"
    write_records(path, records)
    again = read_records(path)
    assert [record.confusion for record in again] == [record.confusion for record in records]
    quality, last = evaluation.quality["dmt"], again[-1]
    assert last.macro_f1 == quality.macro_f1
    assert last.auc == pytest.approx(quality.auc, nan_ok=True)
    assert summarise(again)["dmt"]["macro_f1"].mean == quality.macro_f1
    [whole] = label_blocks(again, most=1)
    assert (whole.first, whole.last) == (100, 3000)
    names = [*evaluation.grader.codes][:MOST_LABELS]
    told = {one.label: one for one in whole.labels()}
    assert list(told) == names + [OTHERS] * (n_labels > MOST_LABELS)
    for one in quality.labels([*evaluation.grader.codes])[:MOST_LABELS]:
        assert told[one.label] == pytest.approx(one, nan_ok=True)
    assert sum(one.share for one in told.values()) == pytest.approx(1)
    assert len(label_blocks(again, most=7)) == 6
    write_labels(tmp_path / "labels.csv", {"dmt": again})
    lines = (tmp_path / "labels.csv").read_text().splitlines()
    assert len(lines) == 1 + 29 * min(n_labels, MOST_LABELS + 1)


def test_the_majority_is_of_what_has_come():
    evaluation = Evaluation("majority", pretrain=False)
    one, two = (
        evaluation.take(np.zeros((10, 1)), np.array(["a"] * n + ["b"] * (10 - n)))[0]
        for n in (7, 2)
    )
    assert one.majority == 0.7
    assert two.majority == 0.8  # 9 of "a" and 11 of "b"
    assert one.confusion == {"a": {"(nothing)": 7}, "b": {"(nothing)": 3}}


def test_names_of_labels_are_different():
    names = name_labels(["1 #3", 1, "1"])
    assert len(set(names)) == 3
