"""Quality: the figures are scikit-learn's, whatever the batches; a checkpoint keeps them."""

import json

import numpy as np
import pytest
from river import metrics
from sklearn.metrics import f1_score, precision_recall_fscore_support, roc_auc_score

from driftree.evaluate import Evaluation, Quality, prequential
from driftree.evaluate.quality import MOST_BLOCKS, sign_test
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
    assert len(quality.mix) <= MOST_BLOCKS
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


def test_the_sign_test_is_scipys():
    from scipy.stats import binomtest

    for n_better, n_worse in ((9, 1), (0, 0), (40, 60), (700, 800)):
        n = n_better + n_worse
        expected = binomtest(n_better, n).pvalue if n else 1.0
        assert sign_test(n_better, n_worse) == pytest.approx(expected, rel=0.05)
