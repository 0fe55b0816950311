"""River's metrics in an evaluation: which learner each is of, and how its rows are told to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from river.metrics.base import ClassificationMetric, Metric, RegressionMetric

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from driftree.evaluate.grading import Answer, Grader


def read_metrics(metrics: Any, learners: Mapping[str, Any]) -> dict[str, list[Metric]]:
    """Return the metrics of each learner.

    Examples
    --------
    >>> from river.metrics import MacroF1
    >>> read_metrics(MacroF1(), {"dmt": None})
    {'dmt': [MacroF1: 0.00%]}
    >>> read_metrics([MacroF1()], {"dmt": None, "efdt": None})
    Traceback (most recent call last):
    ValueError: there are 2 learners, and each needs metrics of its own: give a dict from their
    names (dmt, efdt) to metrics
    """
    if isinstance(metrics, Metric):
        metrics = [metrics]
    if isinstance(metrics, Mapping):
        unknown = metrics.keys() - learners.keys()
        if unknown:
            raise ValueError(f"there is no learner {min(unknown)!r}, only {', '.join(learners)}")
        found = {
            name: [own] if isinstance(own, Metric) else list(own) for name, own in metrics.items()
        }
    elif metrics and len(learners) > 1:
        raise ValueError(
            f"there are {len(learners)} learners, and each needs metrics of its own: give a dict "
            f"from their names ({', '.join(learners)}) to metrics"
        )
    else:
        found = {name: list(metrics) for name in learners} if metrics else {}
    for metric in (one for own in found.values() for one in own):
        if not isinstance(metric, (ClassificationMetric, RegressionMetric)):
            raise TypeError(f"metrics must be River's, of labels or numbers, got {metric!r}")
    return found


def update_metric(
    metric: Any, truth: list[NDArray[Any]], answers: list[Answer], grader: Grader
) -> None:
    """Tell a metric of the rows of a batch: labels, or where it wants them, probabilities."""
    labels = list(getattr(grader, "codes", ()))
    for codes, answer in zip(truth, answers, strict=True):
        if not labels:
            for y, said in zip(codes.tolist(), answer.predicted.tolist(), strict=True):
                metric.update(y, said)
        elif metric.requires_labels:
            for code, said in zip(codes.tolist(), answer.predicted.tolist(), strict=True):
                metric.update(labels[code], labels[said] if said >= 0 else None)
        elif answer.probability is not None:
            for code, share in zip(codes.tolist(), answer.probability.tolist(), strict=True):
                metric.update(labels[code], _probabilities(labels, code, share))


def _probabilities(labels: list[Any], code: int, share: float) -> dict[Any, float]:
    """Return the probability of each label; only that of the true one is known, if there are many.

    The others have equal parts of the rest, which is exact for two labels.
    """
    rest = (1 - share) / max(1, len(labels) - 1)
    return {label: share if k == code else rest for k, label in enumerate(labels)}
