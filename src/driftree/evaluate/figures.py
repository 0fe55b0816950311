"""The paper's figures 3 and 4, and the course of any evaluation, drawn with matplotlib."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from driftree.evaluate.drawing import (
    BELOW_ZERO,
    FONT_SIZE,
    Drifts,
    Style,
    choose_styles,
    draw_curve,
    drift_handles,
    is_abrupt,
    learner_handles,
    mark_drifts,
    page,
    set_tradeoff_axes,
    write_count,
    write_rows,
)
from driftree.evaluate.findings import Results
from driftree.evaluate.published import SPLITS, TITLES
from driftree.evaluate.records import Record, by_learner, columns, summarise

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WINDOW = 20  # batches, as in the paper's figure 3
TREES = ("dmt", *dict.fromkeys(learner for _, learner in SPLITS))
SUFFIXES = (".png", ".svg", ".pdf")
# Panels from top to bottom: the paper's four, then the others with known drift.
DRIFT_ORDER = ("hyperplane", "sea", "insects_incremental", "tueyeq", "agrawal", "insects_abrupt")


def plot_records(
    records: Iterable[Record], *, drifts: Drifts = (), window: int = WINDOW, title: str = ""
) -> Figure:
    """Draw F1 and the number of splits of some learners over the rows of one stream.

    Parameters
    ----------
    records : iterable of Record
        What was seen of them.
    drifts : sequence of int or (int, int), default=()
        Rows at which the stream changes abruptly, or spans in which it changes.
    window : int, default=20
        Batches of the sliding mean; the shade is one standard deviation to either side.
    title : str, optional
        Name of the stream.

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> from driftree.evaluate import prequential
    >>> from driftree.streams import sea
    >>> figure = plot_records(prequential({"all": "majority"}, sea(5000)), drifts=[3000])
    >>> [axes.get_ylabel() for axes in figure.axes]
    ['F1', 'splits (log scale)']
    """
    courses = by_learner(records)
    if not courses:
        raise ValueError("there are no records to draw")
    figure, panels = page(2, 1, height=4.6)
    styles = choose_styles(courses)
    above, below = panels[:, 0]
    _draw_course(above, below, courses, styles, drifts=drifts, window=window)
    above.set_title(title, fontsize=FONT_SIZE + 1, loc="left")
    below.set_xlabel("rows", fontsize=FONT_SIZE)
    _add_legend(figure, styles, [drifts])
    return figure


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
        Where each data set changes. Those that were run and have known drift get a row of panels.
    learners : sequence of str
        Which ones to draw, by default the stand-alone trees, as in the paper.
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
        _draw_course(left, right, course, styles, drifts=places, window=window)
        left.set_title(f"{TITLES[name]}{_name_kind(places)}", fontsize=FONT_SIZE + 1, loc="left")
    for panel in panels[-1]:
        panel.set_xlabel("rows", fontsize=FONT_SIZE)
    _add_legend(figure, styles, [drifts.get(name, ()) for name in courses])
    return figure


def figure_tradeoff(results: Results, *, learners: Sequence[str] = TREES) -> Figure:
    """Draw the paper's figure 4: F1 against the number of splits.

    Small marks are the means over one data set; the large ones are the means of these, over the
    data sets that all learners ran on. Top left is where one wants to be: few splits, high F1.

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
    'number of splits (log scale)'
    """
    points: dict[str, dict[str, tuple[float, float]]] = {}
    for (data_set, learner), records in results.items():
        if learner in learners and records:
            summary = summarise(records)[learner]
            point = (summary["n_splits"].mean, summary["f1"].mean)
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
    set_tradeoff_axes(panel)
    _add_legend(figure, styles, [], has_lines=False)
    return figure


def save_figure(figure: Figure, path: str | Path) -> None:
    """Write a figure as .png (200 dots per inch), .svg or .pdf.

    Examples
    --------
    >>> save_figure(None, "figure.bmp")
    Traceback (most recent call last):
    ...
    ValueError: figures are written as .png, .svg or .pdf, got 'figure.bmp'
    """
    path = Path(path)
    if path.suffix not in SUFFIXES:
        raise ValueError(f"figures are written as .png, .svg or .pdf, got {str(path)!r}")
    from matplotlib import rc_context

    # neither a date nor random names inside, so that the same results give the same file
    metadata = {".png": {}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}[path.suffix]
    with rc_context({"svg.hashsalt": "driftree"}):
        figure.savefig(path, dpi=200, metadata=metadata)


# ---------------------------------------------------------------------- parts
def _draw_course(
    above: Axes,
    below: Axes,
    courses: Mapping[str, Sequence[Record]],
    styles: Mapping[str, Style],
    *,
    drifts: Drifts,
    window: int,
) -> None:
    """Draw F1 into one panel and the number of splits into another."""
    mark_drifts((above, below), drifts)
    for i, (learner, records) in enumerate(courses.items()):
        values = columns(records)
        draw_curve(above, values["n_rows"], values["f1"], styles[learner], window=window, number=i)
        draw_curve(
            below, values["n_rows"], values["n_splits"], styles[learner], window=window, number=i
        )
    last_row = max(records[-1].n_rows for records in courses.values())
    for panel in (above, below):
        panel.set_xlim(0, last_row)
        panel.xaxis.set_major_formatter(write_rows)
    low, high = above.get_ylim()
    above.set_ylim(max(low, -0.02), min(high, 1.02))  # shades may go beyond what is possible
    above.set_ylabel("F1", fontsize=FONT_SIZE)
    below.set_ylabel("splits (log scale)", fontsize=FONT_SIZE)
    below.set_yscale("symlog", linthresh=1)  # a tree may have none
    below.set_ylim(bottom=BELOW_ZERO)
    below.yaxis.set_major_formatter(write_count)


def _add_legend(
    figure: Figure, styles: Mapping[str, Style], drifts: Iterable[Drifts], *, has_lines: bool = True
) -> None:
    """Say above the panels who is who, and what marks a drift."""
    from matplotlib.lines import Line2D

    handles = learner_handles(styles, has_lines=has_lines)
    if not has_lines:
        dot: dict[str, Any] = {"marker": "o", "color": "0.5", "linestyle": "", "markeredgewidth": 0}
        handles.append(Line2D([], [], label="small: one data set", markersize=3, **dot))
        handles.append(Line2D([], [], label="large: mean over data sets", markersize=7, **dot))
    handles += drift_handles(place for places in drifts for place in places)
    figure.legend(
        handles=handles,
        loc="outside upper center",
        ncols=min(len(handles), 5 if has_lines else 3),
        fontsize=FONT_SIZE,
        frameon=False,
        handlelength=3.2 if has_lines else 1,
    )


def _name_kind(drifts: Drifts) -> str:
    """Return the kind of drift as the paper's captions name it."""
    kinds = {is_abrupt(place) for place in drifts}
    words = [word for kind, word in ((True, "abrupt"), (False, "incremental")) if kind in kinds]
    return f" ({' and '.join(words)} drift)" if words else ""
