"""The picture of drift in the tree: for all rows at once, or in one branch."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from driftree.explain.losses import loss_by_node, loss_rises
from driftree.show.scores import drift_spans, write_rows
from driftree.show.style import (
    CHANGES,
    FONT_SIZE,
    INK,
    PAGE_WIDTH,
    UNKNOWN,
    add_heading,
    add_scale,
    axes_or_new,
    check_samples,
    colour_limit,
    say_rows,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from driftree.estimators import DynamicModelTreeClassifier
    from driftree.explain.losses import LossRise, NodeLoss
    from driftree.show.scores import Drifts

HEADING = 5.6  # inches for words above the axes
MAX_LEVELS = 6
LINES = 60  # of the picture per level
GAP = 6  # between levels
MOST = 4  # sentences below the picture


def plot_drift_by_level(
    model: DynamicModelTreeClassifier, *, drifts: Drifts = (), ax: Axes | None = None
) -> Axes:
    """Draw where in the tree the loss rose and fell over time: a drift is global or local.

    Each band is a level of the tree, from the root down. In a band the nodes lie in tree order,
    each as high as its share of the rows; a leaf goes on through the levels below. The colour is
    the loss per row against the node's own earlier samples. A drift for all rows is a column
    through the whole band, one for some rows a part of it.

    Parameters
    ----------
    model : DynamicModelTreeClassifier
        A model that keeps its history.
    drifts : sequence of int or (int, int), default=()
        Rows at which the stream is known to change abruptly, or spans in which it changes.
    ax : matplotlib Axes, optional
        Where to draw; by default a figure of its own.

    Returns
    -------
    matplotlib Axes

    See Also
    --------
    loss_by_node : What is drawn, as data.
    loss_rises : The same in words.

    Examples
    --------
    >>> import numpy as np
    >>> from driftree import DynamicModelTreeClassifier
    >>> X = np.random.default_rng(1).uniform(-1, 1, size=(9000, 2))
    >>> y = (X[:, 0] > 0) ^ (X[:, 1] > 0) ^ (np.arange(9000) > 6000)  # all turns round
    >>> ax = plot_drift_by_level(DynamicModelTreeClassifier().partial_fit(X, y), drifts=[6000])
    >>> [text.get_text() for text in ax.get_yticklabels()]
    ['root', 'level 1', 'level 2']
    """
    losses = loss_by_node(model)
    check_samples(model, len(losses), "the tree")
    n_levels = 1 + max(seen.depth for seen in losses)
    shown = min(n_levels, MAX_LEVELS)
    rows, image = _paint(losses, shown)
    ax = axes_or_new(ax, width=PAGE_WIDTH, height=1.9 + 0.55 * shown)
    height = LINES + GAP
    most = colour_limit(image, least=0.05)
    ax.patch.set(**UNKNOWN)
    edges = np.concatenate(([0], rows)).astype(float)
    picture = ax.pcolormesh(
        edges,
        np.arange(len(image) + 1),
        image,
        cmap=CHANGES,
        vmin=-most,
        vmax=most,
        rasterized=True,
    )
    add_scale(ax, picture, "change in loss per row (nats)", extend="both")
    ax.set_ylim(len(image), 0)
    for level in range(1, shown):
        ax.axhspan(level * height - GAP, level * height, color="white", linewidth=0)
    _mark_drifts(ax, drift_spans(drifts, model.n_rows_seen_))
    ax.set_yticks([level * height + LINES / 2 for level in range(shown)])
    ax.set_yticklabels(["root", *(f"level {level}" for level in range(1, shown))])
    ax.tick_params(axis="y", length=0)
    ax.xaxis.set_major_formatter(write_rows)
    _tell(ax, model, say_rows(model, rows[-1]))
    words = "height: share of rows; hatched: too new to compare"
    if n_levels > shown:
        words += f"; {shown} of {n_levels} levels"
    if drifts:
        words += "; on top: known drifts"
    title = "Did the loss rise everywhere, or in a branch?"
    add_heading(ax, title, words, width=HEADING, lines=2 if drifts else 1)
    return ax


def _paint(
    losses: list[NodeLoss], n_levels: int
) -> tuple[list[int], np.ndarray[tuple[int, int], np.dtype[np.float64]]]:
    """Return the samples' rows, and the changes as an image [lines, samples]; NaN is nothing."""
    rows = sorted({seen.n_rows for seen in losses})
    places = {row: place for place, row in enumerate(rows)}
    parents = {(seen.n_rows, seen.parent) for seen in losses}
    image = np.full((n_levels * (LINES + GAP) - GAP, len(rows)), math.nan)
    for seen in losses:
        is_leaf = (seen.n_rows, seen.node) not in parents
        last = n_levels if is_leaf else min(seen.depth + 1, n_levels)
        for level in range(seen.depth, last):
            top = level * (LINES + GAP)
            start, stop = (top + round(LINES * part) for part in (seen.start, seen.stop))
            image[start:stop, places[seen.n_rows]] = seen.change
    return rows, image


def _mark_drifts(ax: Axes, spans: list[tuple[int, int]]) -> None:
    """Mark known drifts above the bands: colours there must stay as they are."""
    above: dict[str, Any] = {"transform": ax.get_xaxis_transform(), "clip_on": False, "color": INK}
    for start, stop in spans:
        if start == stop:
            ax.plot(start, 1.015, marker="v", markersize=6, **above)
        else:
            ax.plot([start, stop], [1.015, 1.015], linewidth=3, solid_capstyle="butt", **above)


def _tell(ax: Axes, model: DynamicModelTreeClassifier, axis: str) -> None:
    """Name the axis, and say below it what can be said: the rises for the most rows."""
    rises = sorted(loss_rises(model), key=lambda rise: -rise.share)
    lines = [
        f"rows {rise.start:,} to {rise.stop:,}: {_say(rise)}"
        for rise in sorted(rises[:MOST], key=lambda rise: rise.start)
    ]
    if (rest := len(rises) - MOST) > 0:
        lines.append(f"and {rest} {'rise' if rest == 1 else 'rises'} for fewer rows")
    ax.set_xlabel(
        "\n".join([axis, *(["the loss rose:"] if lines else []), *lines]), fontsize=FONT_SIZE
    )


def _say(rise: LossRise) -> str:
    if rise.kind == "undivided":
        return "a rise, with no branches to compare"
    return f"{rise.kind}, {rise.n_risen} of {rise.n_branches} branches, {rise.share:.0%} of rows"
