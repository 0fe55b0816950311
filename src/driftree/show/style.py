"""Style: what all plots share. Colours, sizes, and texts that fit the available space.

The colours are Okabe and Ito's, which colour-blind readers can tell apart; besides, whatever a
colour shows is also shown by position, direction, shape or text. Names come from the user's data:
they are never interpreted as formulas ("$" stays a dollar), and are shortened to fit.
"""

from __future__ import annotations

import math
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from driftree.explain.changes import history_of
from driftree.explain.describe import inside
from driftree.explain.text import one_line, shorten_together
from driftree.learn.events import join_path
from driftree.learn.storage.atomic import whole_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.cm import ScalarMappable
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from driftree.estimators import DynamicModelTreeClassifier, DynamicModelTreeRegressor
    from driftree.learn.events import Condition
    from driftree.learn.units import Unit

    AnyTree = DynamicModelTreeClassifier | DynamicModelTreeRegressor

MISSING = "plots need matplotlib: pip install matplotlib"
SUFFIXES = (".png", ".svg", ".pdf")
FONT_SIZE = 8  # points at the printed size
PAGE_WIDTH = 7.16  # inches, the two columns of an IEEE page
INK = "#1a1a1a"
MUTED = "#555555"  # 7:1 on white
FAINT = "#d9d9d9"
UP = "#0072B2"  # for a label, more likely
DOWN = "#D55E00"
OTHERS = "#b3b3b3"
# For labels, if there are more than two: neither UP nor DOWN, which have another meaning.
PALETTE = ("#009E73", "#CC79A7", "#F0E442", "#56B4E9", "#E69F00", "#4d4d4d")
# ColorBrewer's, for values around 0, safe for colour-blind readers
SIGNS = "RdBu"  # red below 0, blue above, like DOWN and UP
CHANGES = "PuOr_r"  # purple: less; orange: more
MEANS = "cividis"  # for numbers, from low to high; suitable for colour-blind readers
# Light colours of these scales are close to white and grey, so unknown values are hatched.
UNKNOWN: dict[str, Any] = {"facecolor": "white", "edgecolor": "0.75", "hatch": "/////"}
FEW = 0.01  # share of values beyond the colour scale
LATE = 0.95  # share of the rows: if samples end before, the plot says so
SMALL = FONT_SIZE - 1
ENTRY = 2.2  # inches for a name in a legend
KEY = 0.62  # inches for the line before it
ELLIPSIS = "…"
HINTING = 1.07  # at low resolution, letters are up to this much wider
PLAIN: dict[str, Any] = {"parse_math": False}  # texts that contain the user's names


def page(
    n_rows: int, n_columns: int, *, height: float, width: float = PAGE_WIDTH
) -> tuple[Figure, NDArray[np.object_]]:
    """Return an empty figure of a size in inches, and its panels."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(MISSING) from error
    figure = Figure(figsize=(width, height), layout="constrained")
    panels = figure.subplots(n_rows, n_columns, squeeze=False)
    for panel in panels.flat:
        panel.tick_params(labelsize=FONT_SIZE)
        panel.spines[["top", "right"]].set_visible(False)
    return figure, panels


def axes_or_new(ax: Axes | None, *, width: float, height: float) -> Axes:
    """Return the given axes, or those of a new figure of a size in inches."""
    if ax is None:
        _, [[ax]] = page(1, 1, height=height, width=width)
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(labelsize=FONT_SIZE)
    return ax


def add_heading(ax: Axes, title: str, words: str = "", *, width: float, lines: int = 1) -> None:
    """Put a title above the axes, with notes in grey below it, within a width in inches.

    `lines` is how much space to leave: 1 for the notes alone, 2 with a legend below them.
    """
    ax.set_title(
        cut(title, width, FONT_SIZE + 2),  # bold letters are wider
        loc="left",
        fontsize=FONT_SIZE + 1,
        weight="bold",
        pad=6 + 14 * lines,
        **PLAIN,
    )
    ax.annotate(
        cut(words, width, FONT_SIZE),
        (0.0, 1.0),
        (0.0, 6.0 + 14 * (lines - 1)),
        xycoords="axes fraction",
        textcoords="offset points",
        fontsize=FONT_SIZE,
        color=MUTED,
        **PLAIN,
    )


def legend_above(ax: Axes, handles: Sequence[Artist], *, width: float, columns: int = 5) -> int:
    """Put a legend above the axes, within a width in inches; return its number of lines."""
    names = cut_together([str(handle.get_label()) for handle in handles], ENTRY, FONT_SIZE)
    widest = max(measure(name, FONT_SIZE) for name in names) + KEY
    columns = min(len(names), columns, max(1, int(width / widest)))
    legend = ax.legend(
        handles=handles,
        labels=names,
        loc="lower left",
        bbox_to_anchor=(0.0, 1.0),
        ncols=columns,
        fontsize=FONT_SIZE,
        frameon=False,
        borderaxespad=0.2,
    )
    for text in legend.get_texts():
        text.set_parse_math(False)
    return math.ceil(len(names) / columns)


def add_scale(ax: Axes, picture: ScalarMappable, words: str, **settings: Any) -> None:
    """Put a colour scale beside the axes."""
    figure = ax.get_figure()
    assert figure is not None
    bar = figure.colorbar(picture, ax=ax, fraction=0.05, pad=0.02, **settings)
    bar.ax.tick_params(labelsize=FONT_SIZE)
    bar.set_label(words, fontsize=FONT_SIZE)


def colour_limit(values: NDArray[np.float64], least: float = 0.0) -> float:
    """Return the end of the colour scale; a few extreme values are beyond it.

    Examples
    --------
    >>> colour_limit(np.array([-1.0] * 600 + [0.5] * 400 + [1e6])), colour_limit(np.array([0.0]))
    (1.0, 1.0)
    """
    known = np.abs(values[~np.isnan(values)])
    limit = float(np.quantile(known, 1 - FEW)) if len(known) else 0.0
    return max(limit, least) or 1.0  # a scale must not be empty


def check_samples(model: AnyTree, n_samples: int, what: str) -> None:
    """Raise if there is nothing to draw yet; the error says when there will be."""
    if not n_samples:
        due = history_of(inside(model)[0]).next_row
        raise ValueError(
            f"the history has no sample of {what} yet: the next one is due at row {due:,}, the "
            f"model has learnt {model.n_rows_seen_:,}; learn more rows"
        )


def say_rows(model: AnyTree, row: int) -> str:
    """Label the axis of rows, with the last sample if that is well before the end.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> say_rows(SimpleNamespace(n_rows_seen_=4000), 2000)
    'rows (last sample at row 2,000)'
    """
    return f"rows (last sample at row {row:,})" if row < LATE * model.n_rows_seen_ else "rows"


def measure(text: str, size: float) -> float:
    """Return an upper estimate of the width of a text, in inches."""
    try:
        from matplotlib import rcParams
    except ImportError as error:
        raise ImportError(MISSING) from error
    return _width(one_line(text, 10 * len(text)), size, tuple(rcParams["font.family"]))


@lru_cache(maxsize=10_000)  # the same names occur in many leaves
def _width(text: str, size: float, family: tuple[str, ...]) -> float:
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    font = FontProperties(family=family, size=size)
    width, _, _ = text_to_path.get_text_width_height_descent(text, font, ismath=False)
    return HINTING * float(width) / 72


def cut(text: str, width: float, size: float) -> str:
    """Shorten a text to a width in inches in the middle, since long names often differ at the end.

    Examples
    --------
    >>> cut("short", 2.0, 8)
    'short'
    >>> cut("mean temperature of sensor 17", 1.2, 8)
    'mean temp…sor 17'
    """
    text = one_line(text, len(text) * 10)
    if measure(text, size) <= width:
        return text
    low, high = 0, len(text)  # this many characters fit; this many do not
    while high - low > 1:
        middle = (low + high) // 2
        fits = measure(_without_middle(text, middle), size) <= width
        low, high = (middle, high) if fits else (low, middle)
    return _without_middle(text, low)


def _without_middle(text: str, length: int) -> str:
    """Keep so many characters, in the ratio of 3 at the beginning to 2 at the end."""
    n_last = 2 * length // 5
    return text[: length - n_last].rstrip() + ELLIPSIS + text[len(text) - n_last :].lstrip()


def cut_together(texts: Sequence[str], width: float, size: float) -> list[str]:
    """Shorten texts so that they stay different.

    Examples
    --------
    >>> cut_together([f"mean temperature of {what} at noon" for what in ("air", "water")], 1.2, 8)
    ['mea…air at noon', 'mea…water…oon']
    """
    short = shorten_together(texts, lambda text, part: cut(text, part * width, size))
    return [short[text] for text in texts]


def cut_conditions(conditions: Iterable[Condition], width: float, size: float) -> dict[str, str]:
    """Shorten conditions to a width in inches, names first.

    Returns
    -------
    dict of str to str
        By the whole text of the condition. Different names stay different.

    Examples
    --------
    >>> from driftree.learn.events import Condition
    >>> condition = Condition("average income of the household", "<=", 40.0)
    >>> cut_conditions([condition], 1.2, 8)
    {'average income of the household <= 40': 'averag…old <= 40'}
    """
    rests = {str(own): (own.feature, str(own)[len(own.feature) :]) for own in conditions}
    long = {text: own for text, own in rests.items() if measure(text, size) > width}
    widest = max((measure(rest, size) for _, rest in long.values()), default=0.0)
    features = list(dict.fromkeys(feature for feature, _ in long.values()))
    names = cut_together(features, max(width - widest, width / 3), size)
    short = dict(zip(features, names, strict=True))
    return {
        text: cut(short[feature] + rest, width, size) if text in long else cut(text, width, size)
        for text, (feature, rest) in rests.items()
    }


def say_path(path: tuple[Condition, ...], width: float, size: float) -> str:
    """Describe rows within a width in inches: by their conditions, or by the number of conditions.

    Examples
    --------
    >>> from driftree.learn.events import Condition
    >>> path = Condition("age", "<=", 40.0), Condition("income", ">", 1000.0)
    >>> say_path(path, 3.0, 8), say_path(path, 1.5, 8), say_path((), 1.0, 8)
    ('rows with age <= 40 and income > 1000', 'rows with 2 conditions', 'all rows')
    """
    if not path:
        return "all rows"
    text = f"rows with {join_path(path)}"
    if measure(text, size) <= width:
        return text
    if len(path) == 1:
        return cut(text, width, size)
    return f"rows with {len(path)} conditions"


def text_on(colour: str) -> str:
    """Return black or white, whichever is more legible on a colour.

    Examples
    --------
    >>> text_on("#F0E442"), text_on("#0072B2")
    ('#000000', '#ffffff')
    """
    from matplotlib.colors import to_rgb

    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
        for part in to_rgb(colour)
    ]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return "#000000" if (luminance + 0.05) ** 2 > 1.05 * 0.05 else "#ffffff"


def write_signed(value: float, unit: Unit | None = None) -> str:
    """Write an effect with its sign and a suitable number of digits, also in a number's unit.

    Examples
    --------
    >>> write_signed(2.345), write_signed(-0.0123), write_signed(-120.4)
    ('+2.3', '-0.01', '-120')
    >>> from driftree.learn.units import Unit
    >>> [write_signed(value, Unit(0.0, 0.01)) for value in (0.01234, -0.00005)]
    ['+0.0123', '-0.00005']
    >>> [write_signed(value, Unit(0.0, 1e6)) for value in (1234567.0, -34567.0, 12.0)]
    ['+1.2e6', '-34567', '0']
    """
    if unit is not None:
        return _write_in_unit(value, unit)
    digits = 2 if abs(value) < 0.995 else 1 if abs(value) < 99.5 else 0
    return f"{value:+.{digits}f}"


def _write_in_unit(value: float, unit: Unit) -> str:
    size, step = abs(value), unit.factor / 1000
    if size <= step / 2:
        return "0"
    if not 1e-5 <= size < 99_999:
        number, exponent = f"{value:+.1e}".split("e")
        return f"{number}e{int(exponent)}"
    least = max(step, 10.0 ** (math.floor(math.log10(size)) - 2))
    return f"{value:+.{max(0, -math.floor(math.log10(least)))}f}"


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

    # neither a date nor random ids, so that the same results give the same file
    metadata = {".png": {}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}[path.suffix]
    kind = path.suffix.removeprefix(".")
    with rc_context({"svg.hashsalt": "driftree"}), whole_file(path) as file:
        figure.savefig(file, dpi=200, metadata=metadata, format=kind)
