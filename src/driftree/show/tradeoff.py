"""The picture of one run's learners: F1 against the number of splits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from driftree.evaluate.drawing import (
    FONT_SIZE,
    choose_styles,
    learner_handles,
    set_tradeoff_axes,
)
from driftree.evaluate.records import summarise
from driftree.show.style import PLAIN, axes_or_new, cut

if TYPE_CHECKING:
    from collections.abc import Iterable

    from matplotlib.axes import Axes

    from driftree.evaluate.records import Record

NAMES = 1.6  # inches


def plot_tradeoff(records: Iterable[Record], *, ax: Axes | None = None) -> Axes:
    """Draw the F1 of some learners against their number of splits: top left is where to be.

    A mark is the mean over the batches of a run, its cross one standard deviation to each side.
    `driftree.evaluate.figure_tradeoff` draws the same over several data sets.

    Parameters
    ----------
    records : iterable of Record
        What an evaluation saw of the learners. Those whose splits are not known are left out, and
        the legend says so.
    ax : matplotlib Axes, optional
        Where to draw; by default a figure of its own.

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
            xerr=[[min(splits.std, splits.mean)], [splits.std]],  # there are not fewer than none
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
