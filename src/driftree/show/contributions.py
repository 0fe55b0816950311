"""The plot of one prediction: from the average row to this one, feature by feature."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from driftree.explain.explanation import Explanation, Explanations
from driftree.explain.text import label_texts, percent, write_number
from driftree.learn.events import format_number
from driftree.show.style import (
    DOWN,
    FONT_SIZE,
    INK,
    MUTED,
    PLAIN,
    SMALL,
    UP,
    add_heading,
    axes_or_new,
    cut,
    cut_together,
    measure,
    say_path,
    write_signed,
)

if TYPE_CHECKING:
    from collections.abc import Hashable

    from matplotlib.axes import Axes

    from driftree.learn.units import Unit

WIDTH = 7.0
HEADING = 4.2  # inches for the words above the bars
NAMES = 2.3  # inches for the features' names and values
BAR = 0.27  # inches from one bar to the next


def plot_contributions(
    explanation: Explanation,
    *,
    label: Hashable = None,
    max_features: int = 10,
    ax: Axes | None = None,
) -> Axes:
    """Draw how the features of a row move its log-odds away from those of an average row.

    From top to bottom: the log-odds of the average row, what each feature adds, the strongest
    first, and the log-odds of the row. Bars to the right make the label more likely. For a
    regressor it is the prediction, in its unit.

    Parameters
    ----------
    explanation : Explanation
        What `explain_one` returns.
    label : hashable, optional
        With more than two labels, the one to explain; by default the predicted one.
    max_features : int, default=10
        Features with a bar of their own; the others share one.
    ax : matplotlib Axes, optional
        Where to draw; by default a new figure.

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> import numpy as np
    >>> from driftree import DynamicModelTreeClassifier
    >>> rng = np.random.default_rng(1)
    >>> model = DynamicModelTreeClassifier()
    >>> for age, income in rng.uniform([20, 0], [80, 90], size=(1000, 2)).tolist():
    ...     model.learn_one({"age": age, "income": income}, income > 30)
    >>> ax = plot_contributions(model.explain_one({"age": 30, "income": 80}))
    >>> [text.get_text() for text in ax.get_yticklabels()]
    ['average row', 'income = 80', 'age = 30', 'this row']
    """
    if isinstance(explanation, Explanations):
        raise TypeError(
            f"plot_contributions draws one explanation, got those of {len(explanation)} rows: "
            "pass explanations[0]"
        )
    if not isinstance(explanation, Explanation):
        raise TypeError(
            "plot_contributions draws what explain_one of a tree returns, got "
            f"{type(explanation).__name__}: what that of a forest returns can be printed"
        )
    if max_features < 1:
        raise ValueError(f"max_features must be at least 1, got {max_features!r}")
    label, intercept, contributions = _pick(explanation, label)
    bars = list(contributions.items())
    shown = bars if len(bars) <= max_features + 1 else bars[:max_features]
    values = [_write(explanation.row[name]) for name, _ in shown]
    room = NAMES - max((measure(f" = {value}", FONT_SIZE) for value in values), default=0.0)
    names = cut_together([name for name, _ in shown], max(room, NAMES / 2), FONT_SIZE)
    steps = [
        (f"{name} = {value}", length)
        for name, value, (_, length) in zip(names, values, shown, strict=True)
    ]
    if rest := bars[len(shown) :]:
        steps.append((f"{len(rest)} weaker features", sum(value for _, value in rest)))
    ax = axes_or_new(ax, width=WIDTH, height=BAR * (len(steps) + 2) + 1.15)
    words = ["average row", *(cut(word, NAMES, FONT_SIZE) for word, _ in steps), "this row"]
    _draw_steps(ax, intercept, [value for _, value in steps], explanation.unit)
    ax.set_yticks(range(len(words)))
    ax.set_yticklabels(words, fontsize=FONT_SIZE, **PLAIN)
    ax.set_ylim(len(words) - 0.4, -0.6)
    _add_words(ax, explanation, label)
    return ax


def _pick(explanation: Explanation, label: Hashable) -> tuple[Hashable, float, dict[str, float]]:
    """Return the label to explain, its intercept and its contributions."""
    intercept = explanation.intercept
    if explanation.unit is not None:
        return None, *explanation.sums_of(label)
    if len(explanation.probabilities) < 2:
        raise ValueError(
            "contributions need at least two labels, the model has met "
            f"{explanation.prediction!r} only; learn rows of another"
        )
    if not isinstance(intercept, dict):
        if label is not None and label != explanation.label:
            raise ValueError(
                f"with two labels the log-odds are those of {explanation.label!r}, got {label!r}"
            )
        return explanation.label, intercept, explanation.contributions
    label = explanation.prediction if label is None else label
    if label not in intercept:
        known = ", ".join(map(repr, intercept))
        raise ValueError(f"label must be one of {known}, got {label!r}")
    return label, intercept[label], explanation.contributions[label]


def _write(value: Any) -> str:
    if value is None:
        return "missing"
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return format_number(value) if is_number else str(value)


def _draw_steps(ax: Axes, intercept: float, values: list[float], unit: Unit | None) -> None:
    """Draw the bars, each starting where the one above ends; for log-odds, also the 0."""
    ends = [intercept]
    for value in values:
        ends.append(ends[-1] + value)
    last = len(values) + 1
    lowest, highest = min(ends), max(ends)
    if unit is None:
        lowest, highest = min(0.0, lowest), max(0.0, highest)
    room = (highest - lowest or 1.0) * 0.14  # for the numbers beside the bars
    ax.set_xlim(lowest - room, highest + room)
    if unit is None:
        ax.axvline(0.0, color=MUTED, linewidth=0.8, zorder=0)
    gap = room * 0.12
    for place, (start, length) in enumerate(zip(ends, values, strict=False), start=1):
        colour, side = (UP, "left") if length >= 0 else (DOWN, "right")
        ax.barh(place, length, left=start, height=0.66, color=colour)
        x = start + length + (gap if length >= 0 else -gap)
        text = write_signed(length, unit)
        ax.text(x, place, text, ha=side, va="center", fontsize=SMALL, color=INK)
    for place, end in enumerate(ends):
        ax.plot([end, end], [place - 0.33, place + 1.33], color=MUTED, linewidth=0.7, zorder=0)
    for place, end in ((0, ends[0]), (last, ends[-1])):
        ax.plot(end, place, marker="D", markersize=5, color=INK, zorder=3)
        is_right = end < (lowest + highest) / 2
        x, side = (end + 2.5 * gap, "left") if is_right else (end - 2.5 * gap, "right")
        text = write_signed(end) if unit is None else write_number(end, unit)
        ax.text(x, place, text, ha=side, va="center", fontsize=FONT_SIZE, weight="bold", color=INK)


def _add_words(ax: Axes, explanation: Explanation, label: Hashable) -> None:
    by = f"by the model of leaf {explanation.leaf}: "
    words = by + say_path(explanation.path, HEADING - measure(by, FONT_SIZE), FONT_SIZE)
    unit = explanation.unit
    title, axis = (
        _say_labels(explanation, label) if unit is None else _say_number(explanation, unit)
    )
    add_heading(ax, title, words, width=HEADING)
    ax.set_xlabel(axis, fontsize=FONT_SIZE, **PLAIN)
    ax.tick_params(axis="y", length=0)
    ax.spines[["top", "right", "left"]].set_visible(False)


def _say_labels(explanation: Explanation, label: Hashable) -> tuple[str, str]:
    """Return the title, and what the axis means."""
    noun = "logit" if isinstance(explanation.intercept, dict) else "log-odds"
    likely = explanation.probabilities[explanation.prediction]
    labels = label_texts(explanation.probabilities)
    title = f"Predicted: {labels[explanation.prediction]}, probability {percent(likely)}"
    even = " (0: both equally likely)" if any(explanation.floor) else ""  # otherwise implied
    start, end = f"{noun} of ", f"{even}: to the right, more likely"
    name = cut(labels[label], HEADING - measure(start + end, FONT_SIZE), FONT_SIZE)
    return title, start + name + end


def _say_number(explanation: Explanation, unit: Unit) -> tuple[str, str]:
    assert isinstance(explanation.prediction, float)
    title = f"Predicted: {write_number(explanation.prediction, unit)}"
    if explanation.error is not None:
        title += f", with an error of about {write_number(explanation.error, unit)}"
    return title, "log of y" if unit.has_log_link else "y"
