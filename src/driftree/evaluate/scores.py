"""Scores of a batch of predictions, and the size of a learner.

Size is counted by traversing the actual tree: its splits are its inner nodes. The paper counts
more, so that trees with and without models in their leaves can be compared: an inner node is one
split and one parameter. A leaf that predicts the majority, or a mean, is one parameter and no
split. A leaf with a model of its own splits its rows once more: one split for two classes or a
number, c for c classes; its parameters are m (two classes or a number) or m (c - 1), m the number
of features.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from river.rules import AMRules

from driftree.evaluate.learners import NoChange, RunningMean

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

BINS = 15  # of the calibration error
SMALLEST = float(np.finfo(np.float64).eps)  # scikit-learn's bound on probabilities in the log loss


# ---------------------------------------------------------------------- labels
class Scores(NamedTuple):
    """Scores of the predictions of one batch; all except the last are equal to scikit-learn's.

    Attributes
    ----------
    f1 : float
        F1 as the paper's authors compute it: the harmonic mean of weighted precision and weighted
        recall, where a class that was never predicted has the precision 0.
    accuracy : float
        Share of correct predictions.
    kappa : float
        Cohen's kappa; NaN if all labels and predictions are the same class.
    log_loss : float
        Mean negative logarithm of the probability of the true label; NaN without probabilities.
    ece : float
        Expected calibration error of all rows so far: rows are put into 15 bins by the probability
        of the predicted label, and this is the mean absolute difference, over rows, between the
        share of correct predictions in a bin and its mean probability. NaN without probabilities.
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
        Codes of the labels, from 0. -1 is no prediction, and counts as wrong.
    probability : array of float64, optional
        Predicted probability of the true label of each row.
    calibration : Calibration, optional
        Calibration over all rows so far, including this batch.

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
    """Calibration of a learner's probabilities: sums over rows in 15 bins of equal width.

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
        """By bin: correct predictions, minus the sum of their probabilities."""

    def add(self, is_right: NDArray[np.bool_], confidence: NDArray[np.float64]) -> None:
        """Add rows: whether the prediction was correct, and its probability."""
        bins = np.minimum((confidence * BINS).astype(np.intp), BINS - 1)
        self.gaps += np.bincount(bins, weights=is_right - confidence, minlength=BINS)
        self.n_rows += len(confidence)

    @property
    def error(self) -> float:
        """The expected calibration error; NaN without rows."""
        return float(np.abs(self.gaps).sum()) / self.n_rows if self.n_rows else float("nan")


# ---------------------------------------------------------------------- numbers
class NumberScores(NamedTuple):
    """Scores of the predicted numbers of one batch; infinite if a prediction is not finite.

    Attributes
    ----------
    mae, rmse : float
        Mean absolute error and root mean squared error; equal to scikit-learn's.
    r2 : float
        Reduction of the squared error, compared with predicting the mean of all targets so far,
        including the batch: 1 is perfect, 0 is as good as the mean. For the first batch it is equal
        to scikit-learn's; later, batches in which the target hardly varies do not dominate. NaN
        while the target has had only one value.
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
        Targets and predictions.
    mean : float, optional
        Of all targets so far; by default of the batch.

    Examples
    --------
    >>> score_numbers(np.array([1.0, 2.0, 4.0, 5.0]), np.array([1.0, 3.0, 4.0, 4.0]))
    NumberScores(mae=0.5, rmse=0.707..., r2=0.8)
    """
    _check_rows(truth)
    with np.errstate(over="ignore", invalid="ignore"):  # it may have diverged
        errors = np.abs(predicted - truth)
        errors[np.isnan(errors)] = np.inf
        mae = float(errors.mean())
    rmse = _root_mean_square(errors)
    spread = _root_mean_square(truth - (truth.mean() if mean is None else mean))
    ratio = rmse / spread if spread > 0 else float("nan")
    return NumberScores(mae=mae, rmse=rmse, r2=1 - ratio * ratio)


def _root_mean_square(numbers: NDArray[np.float64]) -> float:
    """Return it without the overflow or underflow of squares."""
    largest = float(np.abs(numbers).max())
    if largest in (0.0, np.inf):
        return largest
    return largest * float(np.sqrt(np.square(numbers / largest).mean()))


def _check_rows(truth: NDArray[np.generic]) -> None:
    if len(truth) == 0:
        raise ValueError("there is nothing to score in a batch without rows")


# ---------------------------------------------------------------------- size
class Size(NamedTuple):
    """How large a learner is.

    Attributes
    ----------
    n_splits : int
        Inner nodes; for rule learners, conditions.
    n_paper_splits, n_parameters : int
        Splits and parameters as the paper counts them.
    n_nodes : int
        Inner nodes and leaves.
    depth : int
        Conditions on the longest path.
    """

    n_splits: int
    n_paper_splits: int
    n_parameters: int
    n_nodes: int
    depth: int


def measure_size(  # noqa: PLR0911 (a return for each kind of learner)
    model: Any, n_features: int, n_classes: int
) -> Size | None:
    """Return the size of a learner; of an ensemble the sum over its trees, and the largest depth.

    Parameters
    ----------
    model : object
        A learner of driftree; a Hoeffding tree, rules or an ensemble of them, a linear model or a
        dummy of River's, also at the end of a pipeline; or a linear model of scikit-learn's.
    n_features, n_classes : int
        Number of features and classes; driftree's learners know these themselves. Regression has
        one class.

    Returns
    -------
    Size or None
        None if the count is not defined for such a learner.

    Examples
    --------
    >>> from river.tree import HoeffdingTreeClassifier
    >>> model = HoeffdingTreeClassifier(leaf_prediction="nba", grace_period=50)
    >>> for i in range(200):
    ...     model.learn_one({"age": 40 * (i % 2), "height": 1}, i % 2)
    >>> measure_size(model, n_features=2, n_classes=2)
    Size(n_splits=1, n_paper_splits=3, n_parameters=5, n_nodes=3, depth=1)
    """
    if hasattr(type(model), "n_splits_"):
        if not hasattr(model, "n_splits_"):  # it has learnt nothing yet
            return Size(n_splits=0, n_paper_splits=1, n_parameters=0, n_nodes=1, depth=0)
        return Size(*(getattr(model, f"{name}_") for name in Size._fields))
    inner = unwrapped(model)
    if inner is not model:
        return measure_size(inner, n_features, n_classes)
    if hasattr(model, "_root"):
        return _measure_tree(model, n_features, n_classes)
    if isinstance(model, AMRules):  # each rule, and the default one, has a model
        n_rules = len(model._rules)
        leaves = _measure_leaves(n_rules + 1, n_features, n_classes, has_models=True)
        n_tests = sum(len(rule.literals) for rule in model._rules.values())
        return _with_splits(n_tests, leaves)
    if hasattr(model, "models") and not isinstance(model, dict):
        return _sum_of_sizes(measure_size(part, n_features, n_classes) for part in model.models)
    if type(model).__module__.startswith("river.dummy") or isinstance(
        model, (NoChange, RunningMean)
    ):
        return _measure_leaves(1, n_features, n_classes, has_models=False)
    if hasattr(model, "coef_") or type(model).__module__.startswith("river.linear_model"):
        return _measure_leaves(1, n_features, n_classes, has_models=True)
    return None


def unwrapped(model: Any) -> Any:
    """Return the learner inside of a pipeline or a target scaler.

    Examples
    --------
    >>> from river import linear_model, preprocessing
    >>> unwrapped(preprocessing.StandardScaler() | linear_model.LogisticRegression())
    LogisticRegression (...
    """
    steps = getattr(model, "steps", None)
    if isinstance(steps, dict) and steps:  # River's; scikit-learn's is a list of pairs
        return unwrapped(list(steps.values())[-1])
    if isinstance(steps, list) and steps:
        return unwrapped(steps[-1][1])
    inner = getattr(model, "regressor", None)
    return model if inner is None else unwrapped(inner)


def _measure_tree(model: Any, n_features: int, n_classes: int) -> Size:
    """Traverse a River tree: a node with children is an inner node, whatever its class."""
    n_inner = n_leaves = depth = 0
    waiting = [(model._root, 0)]
    while waiting:
        node, level = waiting.pop()
        depth = max(depth, level)
        children = getattr(node, "children", None)
        if children:
            n_inner += 1
            waiting.extend((child, level + 1) for child in children)
        else:
            n_leaves += 1
    has_models = getattr(model, "leaf_prediction", "mc") not in ("mc", "mean")
    leaves = _measure_leaves(n_leaves, n_features, n_classes, has_models=has_models)
    tree = _with_splits(n_inner, leaves)
    return tree._replace(n_nodes=n_inner + n_leaves, depth=depth)


def _measure_leaves(n_leaves: int, n_features: int, n_classes: int, *, has_models: bool) -> Size:
    """Return the size of leaves by themselves."""
    n_more_splits = (n_classes if n_classes > 2 else 1) if has_models else 0
    n_parameters = n_features * max(1, n_classes - 1) if has_models else 1
    return Size(
        n_splits=0,
        n_paper_splits=n_leaves * n_more_splits,
        n_parameters=n_leaves * n_parameters,
        n_nodes=n_leaves,
        depth=0,
    )


def _with_splits(n_splits: int, leaves: Size) -> Size:
    """Return the size of leaves and of the splits above them, each one parameter."""
    return leaves._replace(
        n_splits=n_splits,
        n_paper_splits=n_splits + leaves.n_paper_splits,
        n_parameters=n_splits + leaves.n_parameters,
    )


def _sum_of_sizes(sizes: Iterable[Size | None]) -> Size | None:
    known = list(sizes)
    if None in known:
        return None
    parts = [size for size in known if size is not None]
    sums = {name: sum(getattr(size, name) for size in parts) for name in Size._fields}
    return Size(**sums)._replace(depth=max((size.depth for size in parts), default=0))


def measure_memory(model: Any) -> int | None:
    """Return the bytes that a learner holds; None if unknown.

    River's learners are measured by traversing all their objects, which is slow.

    Examples
    --------
    >>> from driftree.evaluate import make_learner
    >>> measure_memory(make_learner("majority")) > 0
    True
    """
    if hasattr(model, "memory_usage"):
        return int(model.memory_usage())
    if hasattr(type(model), "_raw_memory_usage"):  # a property: hasattr would compute it
        return int(model._raw_memory_usage)
    return None
