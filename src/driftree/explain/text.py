"""Text: the tree as lines of text, and phrases that other forms share."""

from __future__ import annotations

import math
import re
from numbers import Integral
from typing import TYPE_CHECKING, Any

from driftree.explain.describe import class_shares, inside, leaf_model, row_shares
from driftree.explain.sparse import say_forgotten
from driftree.learn.events import ALL_DIGITS, DIGITS, format_number, format_numbers
from driftree.learn.state import undisturbed
from driftree.learn.validation import distinct_texts, nearest_name, plain, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

    from driftree.explain.describe import LeafModel
    from driftree.explain.readable import Readable
    from driftree.learn.encoding import Encoder
    from driftree.learn.tree import Tree
    from driftree.learn.units import Unit

INDENT = "|   "
BRANCH = "|--- "
MAX_LABELS = 5  # of a leaf, with a formula each
MAX_NAME = 40  # characters; longer names are shortened in the middle
MAX_UNKNOWN = 8  # names in a sentence
MAX_CHANGES = 6  # in a sentence
LEAST_WIDTH = 30  # of a condition, at any depth
MAX_DECIMALS = 8  # of a number; smaller ones have an exponent
FAR = 3  # standard deviations: beyond, rounded weights would be misleading


def export_text(model: Readable, *, max_weights: int = 3, digits: int = 3, width: int = 100) -> str:
    """Return the tree as text: its conditions, and the strongest weights of each leaf's model.

    Where the line of a number is bent, the formula has ``curve(income)``, and a line below gives
    its values at its knots: it is linear between knots, and flat outside. A number whose mean is
    far from zero, by more than three standard deviations, is written as a difference: ``(year -
    2007)``. Names of more than 40 characters are shortened in the middle. With more than five
    labels, those most frequent in the leaf are shown. For a regressor the formula is that of the
    number, ``y``.

    Parameters
    ----------
    model : DynamicModelTreeClassifier or DynamicModelTreeRegressor
        A model that has learnt something.
    max_weights : int, default=3
        Weights to show per leaf (with more than two labels: per leaf and label), strongest first.
    digits : int, default=3
        Significant digits of the weights.
    width : int, default=100
        Characters after which a formula is continued on the next line.

    Returns
    -------
    str
        Lines without a final line break.

    See Also
    --------
    leaf_models : The same as data, with all weights.

    Examples
    --------
    >>> import numpy as np
    >>> from driftree import DynamicModelTreeClassifier, export_text
    >>> rng = np.random.default_rng(1)
    >>> model = DynamicModelTreeClassifier(max_bends=0)
    >>> for age, income in rng.uniform([20, 0], [80, 90], size=(1500, 2)).tolist():
    ...     granted = income > 30 if age < 50 else income < 60
    ...     model.learn_one({"age": age, "income": income}, "granted" if granted else "refused")
    >>> print(export_text(model, digits=2))
    |--- age <= 49.8
    |   |--- leaf 1: 51% of rows
    |        log-odds of granted = -3.4 + 0.13 * income - 0.017 * age
    |--- age > 49.8
    |   |--- leaf 2: 49% of rows
    |        log-odds of granted = 6.2 - 0.12 * income + 0.0071 * age

    >>> from driftree import DynamicModelTreeRegressor
    >>> model = DynamicModelTreeRegressor(follow_target=False)
    >>> for x in rng.uniform(0, 10, size=500).tolist():
    ...     model.learn_one({"x": x}, 3.0 * x + 5.0)
    >>> print(export_text(model, digits=2))
    |--- leaf 0: 100% of rows, mean ..., error about ...
         y = 5 + 3 * x
    """
    check_limits(max_weights, digits)
    inside(model)  # raises if it is no such model
    return "\n".join(_lines(model, max_weights, digits, width))


@undisturbed
def _lines(model: Readable, max_weights: int, digits: int, width: int) -> list[str]:
    """Return the lines of the text."""
    tree, encoder = inside(model)
    engine = tree.engine
    shares, centres, names = (
        row_shares(tree),
        _centres(tree, encoder),
        label_texts(tree.target.labels),
    )
    lines = []
    for node in tree.walk():
        depth = int(engine.depth[node])
        if depth:
            branch = f"{INDENT * (depth - 1)}{BRANCH}"
            room = max(LEAST_WIDTH, width - len(branch))
            lines.append(branch + one_line(str(tree.path(node)[-1]), room))
        if engine.left[node] < 0:
            leaf = leaf_model(tree, encoder, node, shares[node], max_weights)
            lines.append(f"{INDENT * depth}{BRANCH}{_describe_leaf(leaf)}")
            margin = INDENT * depth + " " * len(BRANCH)
            frequent = class_shares(tree, node)
            labels = sorted(leaf.weights, key=lambda label: -frequent.get(label, 0.0))[:MAX_LABELS]
            for label in (label for label in leaf.weights if label in labels):
                left_side = say_output(label, names, n_outputs=len(leaf.weights))
                terms = _formula(leaf, label, centres, max_weights, digits)
                terms[0] = f"{left_side} = {terms[0]}"
                lines += [margin + line for line in _wrap(terms, width - len(margin))]
                for curve in _curves(leaf, label, max_weights, digits):
                    lines += [f"{margin}    {line}" for line in _wrap(curve, width - len(margin))]
            if len(leaf.weights) > MAX_LABELS:
                lines.append(f"{margin}and {len(leaf.weights) - MAX_LABELS} rarer labels")
    lines += [one_line(line, width) for line in _say_codes(tree, encoder)]
    if forgotten := say_forgotten(encoder):
        lines.append(forgotten)
    return lines


def leaf_formulas(model: Readable, max_weights: int, digits: int = 3) -> dict[int, str]:
    """Return the formula of each leaf of a regressor, on one line; none for a classifier."""
    tree, encoder = inside(model)
    if tree.engine.has_labels:
        return {}
    centres, shares = _centres(tree, encoder), row_shares(tree)
    found = {}
    for node in tree.leaves():
        leaf = leaf_model(tree, encoder, node, shares[node], max_weights)
        [output, *_] = leaf.weights
        found[node] = f"{output} = {' '.join(_formula(leaf, output, centres, max_weights, digits))}"
    return found


# ---------------------------------------------------------------------- words of other forms, too
def _say_codes(tree: Tree, encoder: Encoder) -> list[str]:
    """List the numbers that represent levels in formulas, which only the paper's setting has."""
    return [
        f"{name} in formulas: " + ", ".join(f"{level!r} is {code}" for level, code in codes.items())
        for name, codes, column in zip(
            encoder.display_names, encoder.levels, tree.engine.value_column, strict=True
        )
        if codes is not None and column >= 0
    ]


def say_output(output: Hashable, names: Mapping[Hashable, str], *, n_outputs: int) -> str:
    """Name the sum of a model: log-odds of the second of two labels, a label's logit, a number.

    Examples
    --------
    >>> (
    ...     say_output(True, {False: "False", True: "True"}, n_outputs=1),
    ...     say_output("y", {}, n_outputs=1),
    ... )
    ('log-odds of True', 'y')
    """
    if output not in names:
        return str(output)
    return f"{'log-odds' if n_outputs == 1 else 'logit'} of {names[output]}"


def write_number(value: float, unit: Unit, *, signed: bool = False) -> str:
    """Format a target, down to about a thousandth of its standard deviation.

    Examples
    --------
    >>> from driftree.learn.units import Unit
    >>> heat = Unit(shift=20.0, factor=5.0)
    >>> write_number(213.45678, heat), write_number(-1.0, heat, signed=True)
    ('213.46', '-1.00')
    >>> write_number(1e12 + 3, Unit(1e12, 2000.0)), write_number(2.3456e-9, Unit(0.0, 1e-9))
    ('1,000,000,000,003', '2.346e-09')
    >>> write_number(123456789.0, Unit(0.0, 1e7))
    '123,460,000'
    """
    sign = "+" if signed else ""
    size = abs(value) if unit.has_log_link else unit.factor
    decimals = 3 - round(math.log10(size)) if 0 < size < math.inf else 3
    if decimals > MAX_DECIMALS or abs(value) >= 1e15:
        digits = decimals + (math.floor(math.log10(abs(value))) if value else 0) + 1
        return f"{value:{sign}.{min(max(digits, 1), ALL_DIGITS)}g}"
    if decimals < 0:
        value, decimals = round(value, decimals), 0
    text = f"{value:{sign},.{decimals}f}"
    return text if abs(value) >= 10_000 else text.replace(",", "")


def say_changes(changes: dict[str, tuple[Any, Any]]) -> str:
    """Describe changes by name; if there are many, the first.

    Examples
    --------
    >>> say_changes({"age": (35, 40.5), "way": ("car", "bus"), "income": (0.30004, 0.3)})
    "age were 40.5 instead of 35, way were 'bus' instead of 'car' and income were 0.3 instead of
    0.30004"
    """
    said = {name: write_change(old, new) for name, (old, new) in changes.items()}
    parts = [f"{one_line(name)} were {new} instead of {old}" for name, (old, new) in said.items()]
    if len(parts) > MAX_CHANGES:
        n_left = len(parts) - MAX_CHANGES + 1
        parts = [*parts[: MAX_CHANGES - 1], f"{n_left} other features changed less"]
    return join_words(parts)


def write_change(old: Any, new: Any) -> tuple[str, str]:
    """Format both values: a new number in full, an old one with at least as many digits."""
    old = plain(old)
    are_numbers = all(isinstance(one, (int, float)) for one in (old, new))
    if not are_numbers or isinstance(new, bool):
        return one_line(repr(old)), one_line(repr(new))
    digits = DIGITS
    while float((after := format_number(new, digits)).replace(",", "")) != new:
        digits += 1
    while (before := format_number(old, digits)) == after and digits < ALL_DIGITS:
        digits += 1
    return before, after


def check_limits(max_weights: int, digits: int = 1) -> None:
    """Raise if so many weights cannot be shown, or not with so many digits."""
    for name, value, least in (("max_weights", max_weights, 0), ("digits", digits, 1)):
        if not isinstance(value, Integral):
            raise TypeError(f"{name} must be a whole number, got {value!r}")
        if value < least:
            raise ValueError(f"{name} must be at least {least}, got {value!r}")


def one_line(text: str, most: int = MAX_NAME) -> str:
    r"""Return a text from data as one line, shortened in the middle if it is too long.

    Non-printing characters, including line breaks, are escaped as in Python.

    Examples
    --------
    >>> one_line("a very long name <= 40", 15)
    'a very …e <= 40'
    >>> print(one_line("two\nlines"))
    two\nlines
    """
    text = printable(text)
    if len(text) <= most:
        return text
    return f"{text[: (most - 1) // 2]}…{text[-(most // 2) :]}"


def join_words(words: list[str]) -> str:
    """Join words to a phrase.

    Examples
    --------
    >>> join_words(["age", "car", "income"])
    'age, car and income'
    """
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def label_texts(labels: Iterable[Hashable], most: int | None = MAX_NAME) -> dict[Hashable, str]:
    """Return labels as distinct texts of one line each; with None, not shortened.

    Examples
    --------
    >>> label_texts([1, "1", "two"])
    {1: '1', '1': "'1'", 'two': 'two'}
    """
    labels = list(labels)
    texts = distinct_texts(map(str, labels), map(repr, labels))
    if most is not None:
        short = shorten_together(texts, lambda text, part: one_line(text, int(part * most)))
        texts = [short[text] for text in texts]
    return dict(zip(labels, texts, strict=True))


def shorten_together(texts: Iterable[str], shorten: Callable[[str, float], str]) -> dict[str, str]:
    """Shorten texts so that they stay different.

    Parameters
    ----------
    texts : iterable of str
        The texts.
    shorten : callable
        Shortens one text to a fraction of the available space.

    Returns
    -------
    dict of str to str
        No two are the same.

    Examples
    --------
    >>> names = [f"the amount in {year} that was paid by all" for year in (2007, 2008)]
    >>> list(shorten_together(names, lambda text, part: one_line(text, int(16 * part))).values())
    ['the…2007… all', 'the…2008… all']
    """
    short = {text: shorten(text, 1.0) for text in texts}
    for alike in _look_alike(short):
        short |= _keep_difference(alike, shorten)
    return dict(zip(short, distinct_texts(short.values(), short.values()), strict=True))


def _look_alike(short: Mapping[str, str]) -> list[list[str]]:
    groups: dict[str, list[str]] = {}
    for text, own in short.items():
        groups.setdefault(own, []).append(text)
    return [group for group in groups.values() if len(group) > 1]


def _keep_difference(
    texts: Sequence[str], shorten: Callable[[str, float], str], shown: int = -1
) -> dict[str, str]:
    """Shorten texts to their beginning and the part where they differ."""
    letters = enumerate(zip(*texts, strict=False))
    place = next((i for i, own in letters if len(set(own)) > 1), min(map(len, texts)))
    if place <= shown:
        return {}
    short = {}
    for text in texts:
        start = re.search(r"\w{0,3}$", text[:place]).start()  # type: ignore[union-attr]
        head = f"{text[:3]}…" if start > 3 else text[:start]
        short[text] = one_line(head) + shorten(text[start:], 0.6)
    for alike in _look_alike(short):
        short |= _keep_difference(alike, shorten, place)
    return short


def say_share(share: float) -> str:
    """Return a share of the rows as text; NaN is no rows yet.

    Examples
    --------
    >>> say_share(0.234), say_share(0.001)
    ('23% of rows', '0.1% of rows')
    """
    return "no rows yet" if math.isnan(share) else f"{percent(share)} of rows"


def percent(share: float) -> str:
    """Return a share in percent, with one more digit if it would round to 0% or 100%.

    Examples
    --------
    >>> percent(0.5), percent(0.0), percent(0.9996), percent(0.004), percent(1e-9)
    ('50%', '0%', '99.9%', '0.4%', '<0.1%')
    """
    if 0 < share < 0.0005:
        return "<0.1%"
    if 0 < share < 0.01 or 0.99 < share < 1:
        return f"{min(share, 0.999):.1%}"
    return f"{share:.0%}"


def say_noise(floor: tuple[float, float]) -> str:
    """Return the share of random labels as text."""
    return f"{percent(sum(floor))} of labels look random"


def say_threshold(threshold: tuple[Hashable, float] | None) -> str:
    """Describe the decision threshold, after a prediction.

    Examples
    --------
    >>> say_threshold(("fraud", 0.08))
    "; 'fraud' is predicted from 8% on"
    """
    if threshold is None:
        return ""
    label, probability = threshold
    return f"; {one_line(repr(label))} is predicted from {percent(probability)} on"


def did_you_mean(name: object, known: Iterable[object]) -> str:
    """Suggest the nearest name; empty if none is near.

    Examples
    --------
    >>> did_you_mean("Incone", ["age", "income"])
    " (did you mean 'income'?)"
    """
    near = nearest_name(name, known)
    return "" if near is None else f" (did you mean {near!r}?)"


def say_unknown(names: Iterable[object], absent: Iterable[object]) -> str:
    """List unknown names of a row; `absent` are known ones that may have been meant.

    Examples
    --------
    >>> say_unknown(["agee", "shoes"], ["age", "income"])
    "Not known to the model: 'agee' (did you mean 'age'?), 'shoes'."
    """
    absent = list(absent)
    said = [one_line(repr(name)) + did_you_mean(name, absent) for name in names]
    rest = f", ... ({len(said)} in all)" if len(said) > MAX_UNKNOWN else ""
    return f"Not known to the model: {', '.join(said[:MAX_UNKNOWN])}{rest}." if said else ""


# ---------------------------------------------------------------------- formulas
def _describe_leaf(leaf: LeafModel) -> str:
    more = f", {say_noise(leaf.floor)}" if any(leaf.floor) else ""
    if leaf.unit is not None and leaf.mean is not None and leaf.error is not None:
        mean, error = write_number(leaf.mean, leaf.unit), write_number(leaf.error, leaf.unit)
        more = f", mean {mean}, error about {error}"
    return f"leaf {leaf.leaf}: {say_share(leaf.share)}{more}"


def _centres(tree: Tree, encoder: Encoder) -> dict[str, float]:
    """Return round numbers near the means of the numeric inputs whose values are far from 0."""
    engine, names = tree.engine, encoder.column_names()
    centres = {}
    for j, column in enumerate(engine.value_column):
        mean = float(engine.scale_mean[j])
        if column >= 0 and abs(mean) * 2 * engine.scale_factor[j] > FAR:
            digits = encoder.digits(j, mean) - 2  # between the spread and a tenth of it
            centres[names[column]] = float(f"{mean:.{digits}g}")
    return centres


def _formula(
    leaf: LeafModel,
    label: Hashable,
    centres: Mapping[str, float],
    max_weights: int,
    digits: int,
) -> list[str]:
    """Return the terms of a label's model, the intercept first."""
    weights, curves = leaf.weights[label], leaf.curves[label]
    names = [name for name in leaf.effects[label] if weights.get(name) != 0.0]
    intercept = leaf.intercept[label] + sum(
        weights[name] * centres[name] for name in names if name in centres and name in weights
    )
    terms = [f"{intercept:.{digits + _more_digits(leaf, intercept)}g}"]
    for name in names[:max_weights]:
        factor = one_line(name)
        if name in curves:
            terms.append(f"+ curve({factor})")
            continue
        weight = weights[name]
        if name in centres:
            sign = "+" if centres[name] < 0 else "-"
            factor = f"({factor} {sign} {format_number(abs(centres[name]), ALL_DIGITS - 2)})"
        elif " " in name:
            factor = f"({factor})"
        terms.append(f"{'-' if weight < 0 else '+'} {abs(weight):.{digits}g} * {factor}")
    if (n_weaker := len(names) - max_weights + leaf.n_weaker) > 0:
        terms.append(f"+ {n_weaker:,} weaker")
    return terms


def _more_digits(leaf: LeafModel, intercept: float) -> int:
    """Return how many leading digits an intercept has beyond the precision needed."""
    if leaf.unit is None or not leaf.unit.factor or not intercept:
        return 0
    size = abs(intercept) / leaf.unit.factor
    return min(ALL_DIGITS - DIGITS, max(0, math.ceil(math.log10(size)))) if size > 1 else 0


def _curves(leaf: LeafModel, label: Hashable, max_weights: int, digits: int) -> list[list[str]]:
    """Return the values of the curves in a formula, each as words that may be wrapped."""
    weights, curves = leaf.weights[label], leaf.curves[label]
    names = [name for name in leaf.effects[label] if weights.get(name) != 0.0]
    found = []
    for name in names[:max_weights]:
        if name in curves:
            points = zip(format_numbers(curves[name].knots), curves[name].values, strict=True)
            words = [f"{value:.{digits}g} at {knot}" for knot, value in points]
            words[:-1] = [f"{word}," for word in words[:-1]]
            found.append([f"curve({one_line(name)}) = {words[0]}", *words[1:]])
    return found


def _wrap(terms: list[str], width: int) -> list[str]:
    """Join terms to lines, wrapped only between terms."""
    lines = terms[:1]
    for term in terms[1:]:
        if len(lines[-1]) + 1 + len(term) <= width:
            lines[-1] += f" {term}"
        else:
            lines.append(f"    {term}")
    return lines
