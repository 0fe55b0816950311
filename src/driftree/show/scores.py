"""Plots of an evaluation: scores over time, F1 against size; styles of learners, marks of drift.

Each learner has a colour that colour-blind readers can tell from the others (Okabe and Ito), and a
line style and a marker of its own, so that the plots can be read in grey print. The metric of a
run, in plots and in the report, is chosen here, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from driftree.evaluate.learners import title_of
from driftree.evaluate.records import SCORES, by_learner, columns, slide, summarise
from driftree.explain.describe import inside
from driftree.show.style import FONT_SIZE, PLAIN, axes_or_new, cut, page

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from driftree.evaluate.records import Record
    from driftree.explain.readable import Readable

Drifts = Sequence[float | Sequence[float]]

SPLITS = {"n_splits": "splits", "n_paper_splits": "splits as the paper counts"}
ENDLESS = 2**62  # longer than any stream
WINDOW = 20  # batches, as in the paper's figure 3
MAX_POINTS = 250  # of a curve; more cannot be distinguished in print, and bloat vector files
N_MARKERS = 6  # of a curve
BELOW_ZERO = -0.15  # start of axes of counts, so that 0 is visible
ABRUPT: dict[str, Any] = {"color": "0.35", "linestyle": (0, (2, 2)), "linewidth": 0.8, "zorder": 0}
INCREMENTAL: dict[str, Any] = {"facecolor": "0.94", "edgecolor": "none", "zorder": 0}

Figures = TypeVar("Figures")


@dataclass(frozen=True)
class Style:
    """The style of a learner; `dashes` are lengths on and off, in line widths."""

    colour: str
    marker: str
    dashes: tuple[float, ...] = ()
    width: float = 1.2


STYLES = {
    "dmt": Style("#000000", "o", width=1.7),
    "forest": Style("#000000", "H", (4, 1), 1.7),
    "dmt-paper": Style("#0072B2", "s", (5, 1.5)),
    "fimtdd": Style("#D55E00", "^", (7, 1.5, 1.5, 1.5)),
    "vfdt-mc": Style("#56B4E9", "v"),
    "vfdt-nba": Style("#009E73", "D", (3, 1)),
    "ht-ada": Style("#CC79A7", "P", (1.2, 1.2), 1.5),
    "efdt": Style("#E69F00", "X", (6, 1, 1, 1, 1, 1)),
    "arf3": Style("#666666", "*"),
    "levbag3": Style("#666666", "h", (4, 2)),
    "logistic": Style("#999999", "<", (2, 1)),
    "majority": Style("#999999", ">", (1, 1)),
    "no-change": Style("#999999", "d", (1, 3)),
}


def choose_styles(learners: Iterable[str]) -> dict[str, Style]:
    """Give each learner its style; those that are not known by name get unused ones."""
    names = list(learners)
    free = cycle([style for name, style in STYLES.items() if name not in names] or STYLES.values())
    return {name: STYLES[name] if name in STYLES else next(free) for name in names}


def drift_spans(drifts: Drifts, n_rows: int) -> list[tuple[int, int]]:
    """Return known drifts as spans of rows; those that begin beyond the stream are left out.

    Parameters
    ----------
    drifts : sequence of int or (int, int)
        Rows at which a stream changes, or the first and last rows between which it does; whole
        numbers of any type, pairs as tuples, lists or arrays.
    n_rows : int
        Rows of the stream; longer spans are cut there.

    Returns
    -------
    list of (int, int)
        First and last row of each, equal if the change is abrupt.

    Examples
    --------
    >>> drift_spans([300, [400, 600], 5000], n_rows=500)
    [(300, 300), (400, 500)]
    """
    if not hasattr(drifts, "__iter__"):
        raise TypeError(
            f"drifts must be a sequence of rows or (first, last) pairs of rows, got {drifts!r}: "
            f"write [{drifts!r}]"
        )
    spans = []
    for drift in drifts:
        rows = np.asarray(drift)
        is_number = rows.dtype.kind in "iuf" and rows.shape in ((), (2,))
        if not is_number or not np.all(np.isfinite(rows)) or np.any(rows != np.round(rows)):
            raise ValueError(
                f"a drift must be a row, or a pair of its first and last row, got {drift!r}"
            )
        first, last = int(rows.min()), int(rows.max())
        if first < n_rows:
            spans.append((first, min(last, n_rows)))
    return spans


def mark_drifts(panels: Iterable[Axes], drifts: Drifts) -> None:
    """Mark known drifts: a line for an abrupt one, a shade for a gradual one."""
    for panel in panels:
        for place in drifts:
            start, stop = drift_spans([place], ENDLESS)[0]
            if start == stop:
                panel.axvline(start, **ABRUPT)
            else:
                panel.axvspan(start, stop, **INCREMENTAL)


def draw_curve(
    panel: Axes,
    rows: NDArray[np.float64],
    values: NDArray[np.float64],
    style: Style,
    *,
    window: int,
    number: int,
) -> None:
    """Draw the sliding mean, and a shade of one standard deviation to either side."""
    mean, std = slide(values, window)
    keep = np.unique(np.linspace(0, len(rows) - 1, min(len(rows), MAX_POINTS)).astype(int))
    rows, mean, std = rows[keep], mean[keep], std[keep]
    spacing = max(1, len(rows) // N_MARKERS)
    panel.fill_between(
        rows, np.maximum(mean - std, 0), mean + std, color=style.colour, alpha=0.13, linewidth=0
    )
    panel.plot(
        rows,
        mean,
        # markers of coinciding curves are shown side by side
        markevery=(spacing * (2 * number + 1) // 14 % spacing, spacing),
        **line_settings(style),
    )


def line_settings(style: Style) -> dict[str, Any]:
    """Return how matplotlib draws a style."""
    return {
        "color": style.colour,
        "linestyle": (0, style.dashes) if style.dashes else "-",
        "linewidth": style.width,
        "marker": style.marker,
        "markersize": 3.5,
        "markeredgewidth": 0,
    }


def set_tradeoff_axes(panel: Axes, splits: str = "n_splits") -> None:
    """Make the axes F1 against the number of splits, by one of two counts."""
    panel.set_xscale("symlog", linthresh=1)  # a tree may have none
    panel.set_xlim(left=BELOW_ZERO)
    panel.xaxis.set_major_formatter(write_count)
    panel.set_xlabel(f"number of {SPLITS[splits]} (log scale)", fontsize=FONT_SIZE)
    panel.set_ylabel("F1", fontsize=FONT_SIZE)


def learner_handles(styles: Mapping[str, Style], *, has_lines: bool = True) -> list[Artist]:
    """Return the legend entries of the learners; with lines, also that of the shades."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Artist] = []
    for name, style in styles.items():
        settings = line_settings(style) | ({} if has_lines else {"linestyle": "", "markersize": 6})
        handles.append(Line2D([], [], label=title_of(name), **settings))
    if has_lines:
        handles.append(Patch(label="spread over batches", color="0.5", alpha=0.3, linewidth=0))
    return handles


def drift_handles(drifts: Iterable[float | Sequence[float]]) -> list[Artist]:
    """Return the legend entries of the kinds of drift that occur."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    kinds = {is_abrupt(place) for place in drifts}
    handles: list[Artist] = []
    if True in kinds:
        handles.append(Line2D([], [], label="abrupt drift", **ABRUPT))
    if False in kinds:
        handles.append(Patch(label="incremental drift", **INCREMENTAL))
    return handles


def is_abrupt(place: float | Sequence[float]) -> bool:
    """Return whether a known drift is a single row rather than a span."""
    [(first, last)] = drift_spans([place], ENDLESS)
    return first == last


def write_rows(value: float, _: float) -> str:
    """Write 200000 as 200k."""
    for size, sign in ((1_000_000, "M"), (1_000, "k")):
        if value >= size:
            return f"{value / size:g}{sign}"
    return f"{value:g}"


def write_count(value: float, _: float) -> str:
    """Write 2000 as 2,000, and nothing below zero."""
    return f"{value:,.0f}" if value >= 0 else ""


NAMES = 1.6  # inches


def plot_tradeoff(records: Iterable[Record], *, ax: Axes | None = None) -> Axes:
    """Draw the F1 of some learners against their number of splits: the top left is best.

    A mark is the mean over the batches of a run, its cross one standard deviation to each side.
    `driftree.paper.figure_tradeoff` draws the same over several data sets.

    Parameters
    ----------
    records : iterable of Record
        Results of an evaluation. Learners whose splits are not known are left out, and the legend
        says so.
    ax : matplotlib Axes, optional
        Where to draw; by default a new figure.

    Returns
    -------
    matplotlib Axes

    See Also
    --------
    driftree.evaluate.summarise : What is drawn, as data.

    Examples
    --------
    >>> from driftree.evaluate import prequential
    >>> from driftree.streams import sea
    >>> ax = plot_tradeoff(prequential({name: name for name in ("dmt", "vfdt-mc")}, sea(5000)))
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['DMT (driftree)', 'VFDT (MC)']
    """
    summary = summarise(records)
    known = {name: own for name, own in summary.items() if own["n_splits"].mean >= 0}
    if not known:
        raise ValueError("there are no records of a learner whose splits are known")
    styles = choose_styles(known)
    ax = axes_or_new(ax, width=6.4, height=3.6)
    for name, style in styles.items():
        splits, f1 = known[name]["n_splits"], known[name]["f1"]
        ax.errorbar(
            splits.mean,
            f1.mean,
            xerr=[[min(splits.std, splits.mean)], [splits.std]],  # counts are not negative
            yerr=f1.std,
            color=style.colour,
            marker=style.marker,
            markersize=7,
            linewidth=0.9,
            linestyle="",
        )
    set_tradeoff_axes(ax)
    handles = learner_handles(styles, has_lines=False)
    n_left_out = len(summary) - len(known)
    title = "mean ± deviation over batches"
    legend = ax.legend(
        handles=handles,
        title=title + (f"\n{n_left_out} without known splits left out" if n_left_out else ""),
        title_fontsize=FONT_SIZE,
        fontsize=FONT_SIZE,
        loc="center left",
        bbox_to_anchor=(1.0, 0.5),
        frameon=False,
        alignment="left",
    )
    for text in legend.get_texts():
        text.set(text=cut(text.get_text(), NAMES, FONT_SIZE), **PLAIN)
    low, high = ax.get_ylim()
    ax.set_ylim(max(low, -0.02), min(high, 1.02))
    return ax


def plot_records(
    records: Iterable[Record], *, drifts: Drifts = (), window: int = WINDOW, title: str = ""
) -> Figure:
    """Draw F1 and the number of splits of some learners over the rows of one stream.

    Parameters
    ----------
    records : iterable of Record
        Results of an evaluation.
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
    draw_course(above, below, courses, styles, drifts=drifts, window=window)
    above.set_title(title, fontsize=FONT_SIZE + 1, loc="left")
    below.set_xlabel("rows", fontsize=FONT_SIZE)
    add_legend(figure, styles, [drifts])
    return figure


def draw_course(
    above: Axes,
    below: Axes,
    courses: Mapping[str, Sequence[Record]],
    styles: Mapping[str, Style],
    *,
    drifts: Drifts,
    window: int,
    splits: str = "n_splits",
) -> None:
    """Draw F1, or MAE for regression, into one panel and the number of splits into another."""
    mark_drifts((above, below), drifts)
    task = next(iter(courses.values()))[0].task
    score = SCORES[task][0]
    for i, (learner, records) in enumerate(courses.items()):
        values = columns(records)
        draw_curve(above, values["n_rows"], values[score], styles[learner], window=window, number=i)
        draw_curve(
            below, values["n_rows"], values[splits], styles[learner], window=window, number=i
        )
    last_row = max(records[-1].n_rows for records in courses.values())
    for panel in (above, below):
        panel.set_xlim(0, last_row)
        panel.xaxis.set_major_formatter(write_rows)
    low, high = above.get_ylim()
    is_share = task == "classification"
    above.set_ylim(max(low, -0.02 if is_share else 0), min(high, 1.02) if is_share else high)
    above.set_ylabel(score.upper(), fontsize=FONT_SIZE)  # shades may exceed the possible range
    below.set_ylabel(f"{SPLITS[splits]} (log scale)", fontsize=FONT_SIZE)
    below.set_yscale("symlog", linthresh=1)  # a tree may have none
    below.set_ylim(bottom=BELOW_ZERO)
    below.yaxis.set_major_formatter(write_count)


def add_legend(
    figure: Figure, styles: Mapping[str, Style], drifts: Iterable[Drifts], *, has_lines: bool = True
) -> None:
    """Add a legend of learners and drifts above the panels."""
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


# ---------------------------------------------------------------------- which metric
class Metric(NamedTuple):
    """A score of a batch.

    Attributes
    ----------
    field : str
        Its name in a record.
    title : str
        Its name for people.
    words : str
        A sentence that explains it.
    is_share : bool
        Whether it lies between 0 and 1; otherwise it is an error in the unit of the target.
    """

    field: str
    title: str
    words: str = ""
    is_share: bool = True

    def of(self, figures: Mapping[str, Figures]) -> Figures:
        """Return this score from those by field; raise if the records lack it."""
        if self.field not in figures:
            raise ValueError(
                f"the records have no {self.title}, which this model is scored by, but "
                f"{', '.join(figures)}: give those of a run of it"
            )
        return figures[self.field]


OF_LABELS = (
    Metric(
        "f1",
        "F1",
        "F1 is the harmonic mean of precision and recall, averaged over the labels, weighted by "
        "their rows: 1 is perfect.",
    ),
    Metric("accuracy", "accuracy"),
)
OF_NUMBERS = (
    Metric(
        "mae",
        "MAE",
        "MAE is the mean absolute error, in the unit of the target: 0 is perfect.",
        is_share=False,
    ),
    Metric("rmse", "RMSE", is_share=False),
)
MORE_OF_LABELS = (
    Metric("macro_f1", "macro F1", "Unweighted mean of the labels' F1."),
    Metric("auc", "AUC", "Share of pairs of rows with different labels that are ranked correctly."),
    Metric(
        "ece", "ECE", "Mean difference between predicted probabilities and observed frequencies."
    ),
)
MORE_OF_NUMBERS = (
    Metric("r2", "R2", "0 is as good as the mean of the target so far, 1 is perfect."),
)


def more_metrics(metrics: tuple[Metric, Metric]) -> tuple[Metric, ...]:
    """Return the metrics that tables show besides the two of `metrics_of`."""
    return MORE_OF_LABELS if metrics == OF_LABELS else MORE_OF_NUMBERS


def metrics_of(model: Readable) -> tuple[Metric, Metric]:
    """Return the metric that is drawn, and the one that is shown with it.

    Examples
    --------
    >>> from driftree import DynamicModelTreeRegressor
    >>> model = DynamicModelTreeRegressor()
    >>> model.learn_one({"x": 1.0}, 2.0)
    >>> [metric.title for metric in metrics_of(model)]
    ['MAE', 'RMSE']
    """
    return OF_LABELS if inside(model)[0].engine.has_labels else OF_NUMBERS
