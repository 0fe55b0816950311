"""Scores of a batch: how good predicted labels, or predicted numbers, were."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

BINS = 15  # of the calibration error
SMALLEST = float(np.finfo(np.float64).eps)  # scikit-learn's bound on probabilities in the log loss


# ---------------------------------------------------------------------- labels
class Scores(NamedTuple):
    """How good the predictions of one batch were; all but the last are equal to scikit-learn's.

    Attributes
    ----------
    f1 : float
        F1 as the paper's authors compute it: the harmonic mean of weighted precision and weighted
        recall, where a class that was never predicted has the precision 0.
    accuracy : float
        Share of right predictions.
    kappa : float
        Cohen's kappa; NaN where all labels and predictions are one and the same class.
    log_loss : float
        Mean negative logarithm of the probability of the true label; NaN without probabilities.
    ece : float
        Expected calibration error of all rows so far: rows are put into 15 bins by the probability
        of the predicted label, and this is how far, on average over rows, the share of right
        predictions in a bin is from the mean probability in it. NaN without probabilities.
    """

    f1: float
    accuracy: float
    kappa: float
    log_loss: float
    ece: float


def score(
    truth: NDArray[np.intp],
    predicted: NDArray[np.intp],
    probability: NDArray[np.float64] | None = None,
    calibration: Calibration | None = None,
) -> Scores:
    """Score the predictions of a batch.

    Parameters
    ----------
    truth, predicted : array of int
        Codes of the labels, from 0. A prediction of -1 is none at all, and so is wrong.
    probability : array of float64, optional
        What the learner gave for the true label of each row.
    calibration : Calibration, optional
        What is known of the rows so far, this batch's among them.

    Examples
    --------
    >>> score(np.array([0, 0, 1, 1]), np.array([0, 1, 1, 1]), np.array([0.8, 0.4, 0.9, 0.6]))
    Scores(f1=0.789..., accuracy=0.75, kappa=0.5, log_loss=0.438..., ece=nan)
    """
    _check_rows(truth)
    n_rows, n_classes = len(truth), int(max(truth.max(), predicted.max())) + 1
    support = np.bincount(truth, minlength=n_classes)
    n_predicted = np.bincount(predicted[predicted >= 0], minlength=n_classes)
    hits = np.bincount(truth[truth == predicted], minlength=n_classes)
    precision = float(support @ (hits / np.maximum(n_predicted, 1))) / n_rows
    accuracy = float(hits.sum()) / n_rows  # which is also the weighted recall
    by_chance = float(support @ n_predicted) / n_rows**2
    return Scores(
        f1=2 * precision * accuracy / (precision + accuracy) if precision + accuracy else 0.0,
        accuracy=accuracy,
        kappa=(accuracy - by_chance) / (1 - by_chance) if by_chance < 1 else float("nan"),
        log_loss=float("nan")
        if probability is None
        else float(-np.log(np.clip(probability, SMALLEST, 1 - SMALLEST)).mean()),
        ece=float("nan") if calibration is None else calibration.error,
    )


class Calibration:
    """How honest the probabilities of a learner are: sums of rows in 15 bins of equal width.

    Examples
    --------
    >>> calibration = Calibration()
    >>> calibration.add(np.array([True, False, True, True]), np.array([0.8, 0.8, 0.8, 0.8]))
    >>> round(calibration.error, 3)
    0.05
    """

    def __init__(self) -> None:
        self.n_rows = 0
        self.gaps = np.zeros(BINS)
        """By bin: right predictions, minus the sum of their probabilities."""

    def add(self, is_right: NDArray[np.bool_], confidence: NDArray[np.float64]) -> None:
        """Take in rows: was the prediction right, and how probable was that said to be."""
        bins = np.minimum((confidence * BINS).astype(np.intp), BINS - 1)
        self.gaps += np.bincount(bins, weights=is_right - confidence, minlength=BINS)
        self.n_rows += len(confidence)

    @property
    def error(self) -> float:
        """The expected calibration error; NaN of no rows."""
        return float(np.abs(self.gaps).sum()) / self.n_rows if self.n_rows else float("nan")


# ---------------------------------------------------------------------- numbers
class NumberScores(NamedTuple):
    """How good the predicted numbers of one batch were; infinite where a prediction is no number.

    Attributes
    ----------
    mae, rmse : float
        Mean absolute error, and root of the mean squared error; equal to scikit-learn's.
    r2 : float
        How much smaller the squared error is than that of predicting the mean of all targets so
        far, the batch's included: 1 is perfect, 0 is as good as the mean. Of the first batch this
        is scikit-learn's; later a batch in which the target hardly varies does not count for more
        than others. NaN while the target has had one value only.
    """

    mae: float
    rmse: float
    r2: float


def score_numbers(
    truth: NDArray[np.float64], predicted: NDArray[np.float64], mean: float | None = None
) -> NumberScores:
    """Score the predicted numbers of a batch.

    Parameters
    ----------
    truth, predicted : array of float64
        Targets, and what the learner gave.
    mean : float, optional
        Of all targets so far; by default of the batch.

    Examples
    --------
    >>> score_numbers(np.array([1.0, 2.0, 4.0, 5.0]), np.array([1.0, 3.0, 4.0, 4.0]))
    NumberScores(mae=0.5, rmse=0.707..., r2=0.799...)
    """
    _check_rows(truth)
    scale = float(np.abs(truth).max()) or 1.0  # squares of very large numbers have no room
    with np.errstate(over="ignore", invalid="ignore"):
        errors = np.abs((predicted - truth) / scale)
        errors[np.isnan(errors)] = np.inf
        rmse = float(np.sqrt(np.square(errors).mean()))
    spread = float(
        np.sqrt(np.square((truth - (truth.mean() if mean is None else mean)) / scale).mean())
    )
    return NumberScores(
        mae=float(errors.mean()) * scale,
        rmse=rmse * scale,
        r2=1 - (rmse / spread) ** 2 if spread > 0 else float("nan"),
    )


def _check_rows(truth: NDArray[np.generic]) -> None:
    if len(truth) == 0:
        raise ValueError("there is nothing to score in a batch without rows")
