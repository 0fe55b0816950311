"""Plots of a run over time: scores and changes of the tree; drift in the whole tree or a branch."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from driftree.evaluate.records import by_learner, columns
from driftree.explain.describe import inside
from driftree.explain.loss_over_time import loss_by_node, loss_course, loss_rises
from driftree.show.scores import (
    WINDOW,
    choose_styles,
    draw_curve,
    drift_handles,
    drift_spans,
    learner_handles,
    mark_drifts,
    metrics_of,
    write_rows,
)
from driftree.show.style import (
    CHANGES,
    FONT_SIZE,
    INK,
    MUTED,
    PAGE_WIDTH,
    SMALL,
    UNKNOWN,
    add_heading,
    add_scale,
    axes_or_new,
    check_samples,
    colour_limit,
    legend_above,
    page,
    say_rows,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from driftree.evaluate.records import Record
    from driftree.explain.loss_over_time import LossCourse, LossRise, NodeLoss
    from driftree.show.scores import Drifts, Metric
    from driftree.show.style import AnyTree

# Changes of the tree, from the top lane down: name as in the report, marker, colour.
KINDS = {
    "split": ("split", "^", "#0072B2"),
    "replace": ("replace", "D", "#E69F00"),
    "shift": ("shift", ">", "#7B61C9"),
    "prune": ("prune", "v", "#D55E00"),
    "bend": ("bend", "o", "#009E73"),
    "unbend": ("straighten", "X", "#6B7280"),
    "memory": ("memory", "P", "#56B4E9"),
    "link": ("restart", "s", "#CC79A7"),
}
ALARM = "#D55E00"
RARE = ("shift", "bend", "unbend", "memory")  # have lanes only if there are any
HEADING = 6.2  # inches for the legend
LARGEST, SMALLEST = 9.0, 4.0  # size of marks at the root and from the fifth level on, in points


def plot_timeline(
    model: AnyTree,
    records: Iterable[Record] | None = None,
    *,
    drifts: Drifts = (),
    window: int = WINDOW,
    ax: Sequence[Axes] | NDArray[np.object_] | None = None,
) -> NDArray[np.object_]:
    """Draw how well a run went, and below it when the tree changed, by the kind of change.

    The larger a mark, the nearer to the root is the node that changed. Triangles on top are the
    drifts that the model has detected (`model.drifts()`).

    Parameters
    ----------
    model : DynamicModelTreeClassifier or DynamicModelTreeRegressor
        A model that keeps its history.
    records : iterable of Record, optional
        Results of an evaluation of the model, and perhaps of other learners: then F1 is drawn, or
        the mean absolute error of a regressor. Without them it is the mean loss per row, with that
        of a single model, the root's.
    drifts : sequence of int or (int, int), default=()
        Rows at which the stream is known to change abruptly, or spans in which it changes.
    window : int, default=20
        Batches of the sliding mean of F1; the shade is one standard deviation to either side.
    ax : pair of matplotlib Axes, optional
        Where to draw, the upper and the lower panel; by default a new figure.

    Returns
    -------
    ndarray of two matplotlib Axes
        The upper and the lower panel.

    See Also
    --------
    loss_course : The losses as data.

    Examples
    --------
    >>> import numpy as np
    >>> from driftree import DynamicModelTreeClassifier
    >>> X = np.random.default_rng(1).uniform(-1, 1, size=(2000, 2))
    >>> model = DynamicModelTreeClassifier().partial_fit(X, (X[:, 0] > 0) ^ (X[:, 1] > 0))
    >>> above, below = plot_timeline(model)
    >>> [text.get_text() for text in below.get_yticklabels()]
    ['split (1)', 'replace (0)', 'prune (0)', 'restart (0)']
    """
    courses = by_learner(records or ())
    if records is not None and not courses:
        raise ValueError("there are no records to draw; leave them out to draw the loss")
    losses = loss_course(model) if records is None else None
    if losses is not None:
        check_samples(model, len(losses.n_rows), "the tree")
    above, below = _two_panels(ax)
    mark_drifts((above, below), drifts)
    if losses is not None:
        handles = _draw_loss(above, losses)
    else:
        handles = _draw_scores(above, courses, window, metrics_of(model)[0])
    _draw_events(below, model)
    handles += [*drift_handles(drifts), *_mark_alarms(above, model)]
    legend_above(above, handles, width=HEADING)
    for panel in (above, below):
        panel.set_xlim(0, model.n_rows_seen_)
        panel.xaxis.set_major_formatter(write_rows)
    above.tick_params(labelbottom=False)
    last = int(losses.n_rows[-1]) if losses is not None else model.n_rows_seen_
    below.set_xlabel(say_rows(model, last), fontsize=FONT_SIZE)
    return np.array([above, below], dtype=object)


def _mark_alarms(above: Axes, model: AnyTree) -> list[Artist]:
    """Mark the drifts that the model has detected; return their legend entries."""
    history = inside(model)[0].history
    rows = [] if history is None else [drift.n_rows for drift in history.drifts]
    if not rows:
        return []
    look: dict[str, Any] = {"marker": "v", "linestyle": "none", "color": ALARM, "markersize": 7}
    marks = above.plot(
        rows,
        [1.0] * len(rows),
        transform=above.get_xaxis_transform(),
        clip_on=False,
        label="drift detected by the model",
        zorder=4,
        **look,
    )
    return list(marks)


def _two_panels(ax: Sequence[Axes] | NDArray[np.object_] | None) -> tuple[Axes, Axes]:
    """Return the panels that were given, or those of a new figure."""
    if ax is None:
        _, panels = page(2, 1, height=4.2, width=PAGE_WIDTH)
        above, below = panels[:, 0]
        above.sharex(below)
        return above, below
    if np.asarray(ax, dtype=object).shape != (2,):
        raise ValueError("ax must be a pair of Axes, the upper and the lower panel")
    above, below = (axes_or_new(panel, width=PAGE_WIDTH, height=2.1) for panel in ax)
    return above, below


def _draw_scores(
    above: Axes, courses: dict[str, list[Record]], window: int, metric: Metric
) -> list[Artist]:
    styles = choose_styles(courses)
    for number, (learner, records) in enumerate(courses.items()):
        values = columns(records)
        scores = metric.of(values)
        draw_curve(above, values["n_rows"], scores, styles[learner], window=window, number=number)
    low, high = above.get_ylim()  # shades may exceed the possible range
    if metric.is_share:
        above.set_ylim(max(low, -0.02), min(high, 1.02))
    else:
        above.set_ylim(bottom=max(low, 0.0))
    above.set_ylabel(metric.title, fontsize=FONT_SIZE)
    return learner_handles(styles)


def _draw_loss(above: Axes, course: LossCourse) -> list[Artist]:
    looks: dict[str, dict[str, Any]] = {
        "the tree": {"color": INK, "linewidth": 1.5},
        "one model (the root's)": {"color": "#56B4E9", "linestyle": "--", "linewidth": 1.2},
    }
    lines: list[Artist] = [
        above.plot(course.n_rows, losses, label=name, **look)[0]
        for (name, look), losses in zip(looks.items(), (course.tree, course.root), strict=True)
    ]
    if not min(np.nanmin(course.tree), np.nanmin(course.root)) < 0:  # as it may be in regression
        above.set_ylim(bottom=0.0)
    above.set_ylabel("loss per row (nats)", fontsize=FONT_SIZE)
    return lines


def _draw_events(below: Axes, model: AnyTree) -> None:
    """Draw a lane for each kind of change; for rare kinds only if there are any."""
    events = model.events_
    counts = {kind: sum(event.kind == kind for event in events) for kind in KINDS}
    rare = RARE if inside(model)[0].engine.has_labels else (*RARE, "link")
    kinds = [kind for kind in KINDS if counts[kind] or kind not in rare]
    for lane, kind in enumerate(kinds):
        _, marker, colour = KINDS[kind]
        own = [event for event in events if event.kind == kind]
        below.axhline(lane, color="0.88", linewidth=0.8, zorder=0)
        sizes = [max(LARGEST - 1.25 * len(event.path), SMALLEST) ** 2 for event in own]
        below.scatter(
            [event.n_rows for event in own],
            [lane] * len(own),
            s=sizes,
            marker=marker,
            color=colour,
            edgecolors=INK,
            linewidths=0.5,
            clip_on=False,
            label=kind,
            zorder=3,
        )
    below.set_yticks(range(len(kinds)))
    below.set_yticklabels([f"{KINDS[kind][0]} ({counts[kind]})" for kind in kinds])
    below.tick_params(axis="y", length=0)
    below.set_ylim(len(kinds) - 0.4, -0.6)
    below.spines["left"].set_visible(False)
    words = "changes of the tree; the larger, the nearer to the root"
    below.set_title(words, loc="left", fontsize=FONT_SIZE, color=MUTED)
    history = inside(model)[0].history
    if history is not None and history.first_row:
        below.axvspan(0, history.first_row, facecolor="none", edgecolor="0.8", hatch="//", zorder=0)
        below.text(
            history.first_row / 2,
            1.5,
            "no longer listed",
            ha="center",
            fontsize=SMALL,
            color=INK,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.5},
        )


# ---------------------------------------------------------------------- drift by level
DRIFT_HEADING = 5.6  # inches for words above the axes
MAX_LEVELS = 6
LINES = 60  # of the image per level
GAP = 6  # between levels
MOST = 4  # sentences below the plot


def plot_drift_by_level(model: AnyTree, *, drifts: Drifts = (), ax: Axes | None = None) -> Axes:
    """Draw where in the tree the loss rose and fell over time: whether a drift is global or local.

    Each band is a level of the tree, from the root down. In a band the nodes are in tree order,
    each with a height proportional to its share of the rows; a leaf continues through the levels
    below. The colour is the loss per row compared with the node's own earlier samples. A drift of
    all rows is a column through the whole band, one of some rows a part of it.

    Parameters
    ----------
    model : DynamicModelTreeClassifier or DynamicModelTreeRegressor
        A model that keeps its history.
    drifts : sequence of int or (int, int), default=()
        Rows at which the stream is known to change abruptly, or spans in which it changes.
    ax : matplotlib Axes, optional
        Where to draw; by default a new figure.

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
    >>> y = (X[:, 0] > 0) ^ (X[:, 1] > 0) ^ (np.arange(9000) > 6000)  # labels flip
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
    add_heading(ax, title, words, width=DRIFT_HEADING, lines=2 if drifts else 1)
    return ax


def _paint(
    losses: list[NodeLoss], n_levels: int
) -> tuple[list[int], np.ndarray[tuple[int, int], np.dtype[np.float64]]]:
    """Return the samples' rows, and the changes in loss as an image [lines, samples]."""
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
    """Mark known drifts above the bands, so as not to change colours inside."""
    above: dict[str, Any] = {"transform": ax.get_xaxis_transform(), "clip_on": False, "color": INK}
    for start, stop in spans:
        if start == stop:
            ax.plot(start, 1.015, marker="v", markersize=6, **above)
        else:
            ax.plot([start, stop], [1.015, 1.015], linewidth=3, solid_capstyle="butt", **above)


def _tell(ax: Axes, model: AnyTree, axis: str) -> None:
    """Label the axis, and describe the rises with the most rows below it."""
    rises = sorted(loss_rises(model), key=lambda rise: -rise.share)
    lines = [
        f"The loss rose in rows {rise.start:,} to {rise.stop:,}: {_say(rise)}."
        for rise in sorted(rises[:MOST], key=lambda rise: rise.start)
    ]
    if (rest := len(rises) - MOST) > 0:
        lines.append(f"And {rest} {'rise' if rest == 1 else 'rises'} for fewer rows.")
    ax.set_xlabel("\n".join([axis, *lines]), fontsize=FONT_SIZE)


def _say(rise: LossRise) -> str:
    if rise.kind == "undivided":
        return "a rise, with no branches to compare"
    return f"{rise.kind}, {rise.n_risen} of {rise.n_branches} branches, {rise.share:.0%} of rows"
