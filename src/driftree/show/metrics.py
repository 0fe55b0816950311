"""Metrics: by which scores of the records pictures and the report say how well a run went."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar

from driftree.explain.describe import inside

if TYPE_CHECKING:
    from collections.abc import Mapping

    from driftree.explain.readable import Readable

Figures = TypeVar("Figures")


class Metric(NamedTuple):
    """A score of a batch.

    Attributes
    ----------
    field : str
        Its name in a record.
    title : str
        Its name for people.
    words : str
        What it is, in a sentence.
    is_share : bool
        Whether it lies between 0 and 1; otherwise it is an error in the unit of the target.
    """

    field: str
    title: str
    words: str = ""
    is_share: bool = True

    def of(self, figures: Mapping[str, Figures]) -> Figures:
        """Return this score out of those by field; raise if the records do not have it."""
        if self.field not in figures:
            raise ValueError(
                f"the records have no {self.title}, which is how predictions of this model are "
                f"judged, but {', '.join(figures)}: give those of a run of it"
            )
        return figures[self.field]


OF_LABELS = (
    Metric(
        "f1",
        "F1",
        "F1 is the harmonic mean of precision and recall, averaged over the labels by their rows: "
        "1 is without error.",
    ),
    Metric("accuracy", "accuracy"),
)
OF_NUMBERS = (
    Metric(
        "mae",
        "MAE",
        "MAE is the mean absolute error, in the unit of the target: 0 is without error.",
        is_share=False,
    ),
    Metric("rmse", "RMSE", is_share=False),
)
MORE_OF_LABELS = (
    Metric("macro_f1", "macro F1", "Mean of the labels' F1, each counted once."),
    Metric("auc", "AUC", "Share of pairs of two labels' rows that are ranked rightly."),
    Metric("ece", "ECE", "How far probabilities are from what came true, on the average."),
)
MORE_OF_NUMBERS = (
    Metric("r2", "R2", "0 is as good as the mean of the target so far, 1 is without error."),
)


def more_metrics(metrics: tuple[Metric, Metric]) -> tuple[Metric, ...]:
    """Return what tables say beside the two scores of `metrics_of`."""
    return MORE_OF_LABELS if metrics == OF_LABELS else MORE_OF_NUMBERS


def metrics_of(model: Readable) -> tuple[Metric, Metric]:
    """Return the score that is drawn, and the one that is told beside it.

    Examples
    --------
    >>> from driftree import DynamicModelTreeRegressor
    >>> model = DynamicModelTreeRegressor()
    >>> model.learn_one({"x": 1.0}, 2.0)
    >>> [metric.title for metric in metrics_of(model)]
    ['MAE', 'RMSE']
    """
    return OF_LABELS if inside(model)[0].engine.has_labels else OF_NUMBERS
