"""Scores of a batch equal scikit-learn's."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics

from driftree.evaluate import score, score_numbers
from driftree.evaluate.scores import Calibration

CLOSE = 1e-12


def draw_batch(n_rows: int, n_classes: int, seed: int):
    rng = np.random.default_rng(seed)
    truth = rng.integers(n_classes, size=n_rows)
    proba = rng.dirichlet(np.full(n_classes, 0.3), size=n_rows)
    proba[rng.random(n_rows) < 0.1] = np.eye(n_classes)[0]  # certain, and often wrong
    return truth, proba


@given(st.integers(1, 60), st.integers(2, 8), st.integers(0, 2**20))
def test_scores_equal_those_of_scikit_learn(n_rows, n_classes, seed):
    truth, proba = draw_batch(n_rows, n_classes, seed)
    predicted = proba.argmax(axis=1)
    ours = score(truth, predicted, proba[np.arange(n_rows), truth])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # undefined kappa and precision
        precision = metrics.precision_score(truth, predicted, average="weighted", zero_division=0)
        recall = metrics.recall_score(truth, predicted, average="weighted", zero_division=0)
        kappa = metrics.cohen_kappa_score(truth, predicted)
        log_loss = metrics.log_loss(truth, proba, labels=range(n_classes))
    f1 = 2 * precision * recall / (precision + recall) if precision + recall else 0
    assert ours.f1 == pytest.approx(f1, abs=CLOSE)
    assert ours.accuracy == pytest.approx(metrics.accuracy_score(truth, predicted), abs=CLOSE)
    assert ours.kappa == pytest.approx(kappa, abs=CLOSE, nan_ok=True)
    assert ours.log_loss == pytest.approx(log_loss, abs=CLOSE)


def error_of(is_right, confidence):
    calibration = Calibration()
    for start in range(0, len(is_right), 999):
        calibration.add(is_right[start : start + 999], confidence[start : start + 999])
    return calibration.error


def test_the_calibration_error_is_small_for_honest_probabilities_only():
    rng = np.random.default_rng(1)
    honest = rng.uniform(0.5, 1, size=50_000)
    is_right = rng.random(50_000) < honest
    assert error_of(is_right, honest) < 0.01
    assert error_of(is_right, np.ones(50_000)) == pytest.approx(0.25, abs=0.01)
    by_hand = sum(
        abs((is_right[part].mean() - honest[part].mean()) * part.sum())
        for k in range(15)
        if (part := (honest * 15).astype(int) == k).any()
    )
    assert error_of(is_right, honest) == pytest.approx(by_hand / 50_000)
    assert np.isnan(Calibration().error)


def test_f1_is_not_the_mean_of_the_f1_of_the_classes():
    truth, predicted = np.array([0, 0, 0, 1]), np.array([0, 1, 1, 1])
    weighted = metrics.f1_score(truth, predicted, average="weighted")
    assert score(truth, predicted).f1 == pytest.approx(2 * (5 / 6) * 0.5 / (5 / 6 + 0.5))
    assert abs(score(truth, predicted).f1 - weighted) > 0.05


def test_no_prediction_is_a_wrong_one():
    scores = score(np.array([0, 1, 1]), np.array([-1, 1, -1]))
    assert scores.accuracy == pytest.approx(1 / 3)
    assert scores.f1 == pytest.approx(2 * (2 / 3) * (1 / 3) / (2 / 3 + 1 / 3))
    assert np.isnan(scores.log_loss)


def test_nothing_to_score_is_an_error():
    with pytest.raises(ValueError, match="without rows"):
        score(np.empty(0, dtype=int), np.empty(0, dtype=int))
    with pytest.raises(ValueError, match="without rows"):
        score_numbers(np.empty(0), np.empty(0))


# ---------------------------------------------------------------------- numbers
@given(st.integers(2, 60), st.sampled_from([1e-9, 1.0, 1e12]), st.integers(0, 2**20))
def test_scores_of_numbers_equal_those_of_scikit_learn(n_rows, scale, seed):
    rng = np.random.default_rng(seed)
    truth, predicted = scale * rng.normal(size=(2, n_rows))
    ours = score_numbers(truth, predicted)
    assert ours.mae == pytest.approx(metrics.mean_absolute_error(truth, predicted))
    assert ours.rmse == pytest.approx(metrics.root_mean_squared_error(truth, predicted))
    assert ours.r2 == pytest.approx(metrics.r2_score(truth, predicted))


def test_r2_is_against_the_mean_so_far():
    truth = np.array([9.0, 11.0])
    assert score_numbers(truth, np.full(2, 4.0), mean=4.0).r2 == 0
    assert score_numbers(truth, truth, mean=4.0).r2 == 1
    assert np.isnan(score_numbers(np.full(3, 5.0), np.arange(3.0), mean=5.0).r2)


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_is_infinitely_wrong(wrong):
    assert score_numbers(np.zeros(2), np.array([0.0, wrong]), mean=1.0) == (
        np.inf,
        np.inf,
        -np.inf,
    )


def test_very_large_numbers_have_scores():
    assert score_numbers(np.array([1e200, -1e200]), np.zeros(2)) == pytest.approx((1e200, 1e200, 0))


@pytest.mark.parametrize(
    ("truth", "predicted", "expected"),
    [
        ([1e-200, -1e-200], [0.5, 0.5], (0.5, 0.5, -np.inf)),
        ([5e-324, 0.0], [1.0, 1.0], (1.0, 1.0, -np.inf)),
        ([0.0, 0.0], [0.0, 1e200], (5e199, np.sqrt(0.5) * 1e200, np.nan)),
        ([1.0, 1 + 1e-10], [1e150, 1e150], (1e150, 1e150, -np.inf)),
    ],
)
def test_errors_far_from_the_scale_of_the_target_stay_finite(truth, predicted, expected):
    ours = score_numbers(np.array(truth), np.array(predicted))
    assert ours == pytest.approx(expected, rel=CLOSE, nan_ok=True)


def test_targets_may_become_much_smaller_than_their_mean():
    ours = score_numbers(np.full(2, 1e-200), np.array([0.25, 0.75]), mean=0.5)
    assert ours == pytest.approx((0.5, np.sqrt(0.3125), -0.25), rel=CLOSE)
