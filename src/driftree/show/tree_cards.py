"""The cards of a tree's picture: a leaf's rows, their labels, and its linear model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from driftree.evaluate.drawing import FONT_SIZE
from driftree.explain.text import say_share
from driftree.show.style import (
    DOWN,
    INK,
    MUTED,
    OTHERS,
    PALETTE,
    PLAIN,
    SMALL,
    UP,
    cut,
    text_on,
    write_signed,
)
from driftree.show.tree_layout import BAR, FACTS, HALF_BARS, HEADER, NUMBERS, Box

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from matplotlib.axes import Axes

    from driftree.explain.outline import OutlineNode

CARD = "#f5f5f5"
LEAST_NAME = 6  # characters of a label that say something
MAX_COLOURS = 6  # labels with a colour of their own


@dataclass(slots=True)
class Pen:
    """Draws in inches from the top left, smaller by `scale` where the axes are too small."""

    ax: Axes
    scale: float
    width: float

    def write(self, x: float, y: float, text: str, size: float = SMALL, **settings: Any) -> None:
        """Write a text, by default to the right of a place."""
        looks = {"color": INK, "va": "center", "ha": "left"} | PLAIN | settings
        self.ax.text(x, y, text, fontsize=size * self.scale, **looks)

    def fill(self, x: float, y: float, width: float, height: float, **settings: Any) -> None:
        """Fill a rectangle."""
        from matplotlib.patches import Rectangle

        looks = {"linewidth": 0.0} | settings
        self.ax.add_patch(Rectangle((x, y), width, height, **looks))


# ---------------------------------------------------------------------- what a card shows
def rank_labels(nodes: Mapping[int, OutlineNode]) -> dict[Hashable, str]:
    """Give each label a colour; of many, the most frequent have their own."""
    total: dict[Hashable, float] = {}
    for node in nodes.values():
        if node.left >= 0:
            continue
        for label, probability in (node.probabilities or {}).items():
            weight = node.share if node.share > 0 else 0.0  # not NaN
            total[label] = total.get(label, 0.0) + weight * probability
    ranked = sorted(total, key=lambda label: -total[label])
    own = set(ranked if len(ranked) <= MAX_COLOURS + 1 else ranked[:MAX_COLOURS])
    colours = iter(PALETTE)
    return {label: next(colours) if label in own else OTHERS for label in ranked}


def label_of(node: OutlineNode) -> Hashable:
    """Return the label whose effects a leaf shows."""
    assert node.effects
    if node.probabilities:
        seen = node.probabilities
        return max(node.effects, key=lambda label: seen.get(label, 0.0))
    effects = node.effects
    return max(effects, key=lambda label: max(map(abs, effects[label].values()), default=0.0))


def bars_of(node: OutlineNode, max_weights: int) -> list[tuple[str, float]]:
    """Return the inputs with the strongest effects."""
    if not node.effects:
        return []
    return list(node.effects[label_of(node)].items())[:max_weights]


# ---------------------------------------------------------------------- drawing
def draw_card(pen: Pen, box: Box, labels: Mapping[Hashable, str]) -> None:
    """Draw the left side of a leaf's card: its rows and their labels."""
    node, top = box.node, box.y - box.height / 2
    pen.fill(box.x, top - 0.06, box.width, box.height + 0.12, facecolor=CARD, zorder=0.6)
    pen.fill(box.x, top - 0.06, 0.03, box.height + 0.12, facecolor=MUTED)
    x, right = box.x + 0.1, box.x + FACTS
    title = f"{box.n_hidden} leaves" if box.n_hidden else f"leaf {node.node}"
    pen.write(x, top + HEADER / 2, title, FONT_SIZE, weight="bold")
    pen.write(right, top + HEADER / 2, say_share(node.share), color=MUTED, ha="right")
    if node.probabilities:
        _draw_labels(pen, x, top + HEADER, node.probabilities, labels, width=right - x)


def draw_bars(
    pen: Pen, box: Box, bars: list[tuple[str, float]], *, names: float, longest: float
) -> None:
    """Draw the right side of a leaf's card: the strongest effects of its model."""
    if not bars:
        return
    has_several = len(box.node.effects or ()) > 1
    y = box.y - BAR * (len(bars) + has_several) / 2
    left = box.x + FACTS + names
    zero = left + 0.05 + NUMBERS + HALF_BARS
    if has_several:
        words = cut(f"for {label_of(box.node)}", names - 0.1, SMALL)
        pen.write(left, y + BAR / 2, words, ha="right", color=MUTED, style="italic")
        y += BAR
    pen.ax.plot([zero, zero], [y, y + BAR * len(bars)], color=MUTED, linewidth=0.6 * pen.scale)
    for name, value in bars:
        length = HALF_BARS * value / longest
        pen.fill(zero, y + 0.03, length, BAR - 0.05, facecolor=UP if value > 0 else DOWN)
        pen.write(left, y + BAR / 2, cut(name, names - 0.12, SMALL), ha="right")
        gap, side = (0.03, "left") if value > 0 else (-0.03, "right")
        pen.write(zero + length + gap, y + BAR / 2, write_signed(value), ha=side)
        y += BAR


def _draw_labels(
    pen: Pen,
    x: float,
    y: float,
    probabilities: Mapping[Hashable, float],
    labels: Mapping[Hashable, str],
    *,
    width: float,
) -> None:
    """Draw how often a leaf saw each label: a divided bar, and the most frequent in words."""
    rest = 0.0
    start = x
    for label, colour in labels.items():
        part = probabilities.get(label, 0.0) * width
        if colour == OTHERS:
            rest += part
            continue
        pen.fill(start, y + 0.01, part, 0.16, facecolor=colour, edgecolor="white", linewidth=0.4)
        name = cut(str(label), part - 0.06, SMALL)
        if name == str(label) or len(name) >= LEAST_NAME:
            middle = start + part / 2
            pen.write(middle, y + 0.085, name, ha="center", color=text_on(colour))
        start += part
    pen.fill(start, y + 0.01, rest, 0.16, facecolor=OTHERS, edgecolor="white", linewidth=0.4)
    ranked = sorted(probabilities, key=lambda label: -probabilities[label])[:2]
    words = ", ".join(
        cut(str(label), width / len(ranked) - 0.4, SMALL) + f" {probabilities[label]:.0%}"
        for label in ranked
    )
    pen.write(x, y + 1.5 * HEADER - 0.02, words)
