"""Scores of one batch of predictions, each equal to scikit-learn's."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

SMALLEST = float(np.finfo(np.float64).eps)  # scikit-learn's bound on probabilities in the log loss


class Scores(NamedTuple):
    """How good the predictions of one batch were.

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
    """

    f1: float
    accuracy: float
    kappa: float
    log_loss: float


def score(
    truth: NDArray[np.intp],
    predicted: NDArray[np.intp],
    probability: NDArray[np.float64] | None = None,
) -> Scores:
    """Score the predictions of a batch.

    Parameters
    ----------
    truth, predicted : array of int
        Codes of the labels, from 0. A prediction of -1 is none at all, and so is wrong.
    probability : array of float64, optional
        What the learner gave for the true label of each row.

    Examples
    --------
    >>> score(np.array([0, 0, 1, 1]), np.array([0, 1, 1, 1]), np.array([0.8, 0.4, 0.9, 0.6]))
    Scores(f1=0.789..., accuracy=0.75, kappa=0.5, log_loss=0.438...)
    """
    if len(truth) == 0:
        raise ValueError("there is nothing to score in a batch without rows")
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
    )
