"""The paper's figures 3 and 4."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from driftree.evaluate.records import summarise
from driftree.paper.experiments import Results
from driftree.paper.published import SPLITS, TITLES
from driftree.show.scores import (
    WINDOW,
    Drifts,
    add_legend,
    choose_styles,
    draw_course,
    is_abrupt,
    set_tradeoff_axes,
)
from driftree.show.style import FONT_SIZE, page, save_figure
from driftree.streams.catalogue import DATA_SETS

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.figure import Figure

TREES = ("dmt", *dict.fromkeys(learner for _, learner in SPLITS))
COUNT = "n_paper_splits"
# Panels from top to bottom: the paper's four, then the others with known drift.
DRIFT_ORDER = ("hyperplane", "sea", "insects_incremental", "tueyeq", "agrawal", "insects_abrupt")


def draw_figures(folder: Path, results: Results) -> list[str]:
    """Draw figures 3 and 4, of the single trees, for the screen and for print."""
    drifts = {name: list(record.drifts) for name, record in DATA_SETS.items() if record.drifts}
    data_sets = {data_set for data_set, learner in results if learner in TREES}
    figures = {}
    if data_sets & drifts.keys():
        figures["figure3"] = figure_drift(results, drifts)
    if data_sets:
        figures["figure4"] = figure_tradeoff(results)
    for name, figure in figures.items():
        for suffix in ("png", "pdf"):
            save_figure(figure, folder / f"{name}.{suffix}")
    return [f"{name}.{suffix}" for name in figures for suffix in ("png", "pdf")]


def figure_drift(
    results: Results,
    drifts: Mapping[str, Drifts],
    *,
    learners: Sequence[str] = TREES,
    window: int = WINDOW,
) -> Figure:
    """Draw the paper's figure 3: F1 and the number of splits over time, where drift is known.

    Parameters
    ----------
    results : mapping of (data set, learner) to records
        What was run.
    drifts : mapping of data set to sequence of int or (int, int)
        Known drifts of each data set. Those with results and known drifts get a row of panels.
    learners : sequence of str
        Which ones to draw, by default the single trees, as in the paper.
    window : int, default=20
        Batches of the sliding mean, as in the paper.

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> from driftree.evaluate import prequential
    >>> from driftree.streams import sea
    >>> results = {("sea", "vfdt-mc"): list(prequential("vfdt-mc", sea(5000)))}
    >>> len(figure_drift(results, {"sea": [1000, 2000]}).axes)
    2
    """
    courses = {
        name: {tree: results[name, tree] for tree in learners if results.get((name, tree))}
        for name in DRIFT_ORDER
    }
    courses = {name: course for name, course in courses.items() if course}
    if not courses:
        raise ValueError(
            "there are no results on a data set with known drift: "
            f"run one of {', '.join(DRIFT_ORDER)}"
        )
    styles = choose_styles(
        tree for tree in learners if any(tree in course for course in courses.values())
    )
    figure, panels = page(len(courses), 2, height=0.6 + 1.6 * len(courses))
    for (name, course), (left, right) in zip(courses.items(), panels, strict=True):
        places = drifts.get(name, ())
        draw_course(left, right, course, styles, drifts=places, window=window, splits=COUNT)
        left.set_title(f"{TITLES[name]}{_name_kind(places)}", fontsize=FONT_SIZE + 1, loc="left")
    for panel in panels[-1]:
        panel.set_xlabel("rows", fontsize=FONT_SIZE)
    add_legend(figure, styles, [drifts.get(name, ()) for name in courses])
    return figure


def figure_tradeoff(results: Results, *, learners: Sequence[str] = TREES) -> Figure:
    """Draw the paper's figure 4: F1 against the number of splits.

    Small marks are the means over one data set; the large ones are the means of these, over the
    data sets that all learners ran on. The top left is best: few splits, high F1.

    Parameters
    ----------
    results : mapping of (data set, learner) to records
        What was run.
    learners : sequence of str
        Which ones to draw, by default the stand-alone trees, as in the paper.

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> from driftree.evaluate import prequential
    >>> from driftree.streams import sea
    >>> results = {("sea", "vfdt-mc"): list(prequential("vfdt-mc", sea(5000)))}
    >>> figure_tradeoff(results).axes[0].get_xlabel()
    'number of splits as the paper counts (log scale)'
    """
    points: dict[str, dict[str, tuple[float, float]]] = {}
    for (data_set, learner), records in results.items():
        if learner in learners and records:
            summary = summarise(records)[learner]
            point = (summary[COUNT].mean, summary["f1"].mean)
            points.setdefault(learner, {})[data_set] = point
    if not points:
        raise ValueError(f"there are no results of any of {', '.join(learners)}")
    shared = sorted(set.intersection(*(set(cloud) for cloud in points.values())))
    styles = choose_styles(learner for learner in learners if learner in points)
    figure, [[panel]] = page(1, 1, height=3.6, width=5.0)
    for learner, style in styles.items():
        mark: dict[str, Any] = {"marker": style.marker, "color": style.colour}
        cloud = points[learner]
        panel.scatter(*zip(*cloud.values(), strict=True), s=16, alpha=0.7, linewidths=0, **mark)
        if shared:
            mean = np.mean([cloud[data_set] for data_set in shared], axis=0)
            panel.scatter(*mean, s=100, edgecolors="white", zorder=3, **mark)
    set_tradeoff_axes(panel, COUNT)
    add_legend(figure, styles, [], has_lines=False)
    return figure


def _name_kind(drifts: Drifts) -> str:
    """Return the kind of drift as the paper's captions name it."""
    kinds = {is_abrupt(place) for place in drifts}
    words = [word for kind, word in ((True, "abrupt"), (False, "incremental")) if kind in kinds]
    return f" ({' and '.join(words)} drift)" if words else ""
