"""Dialect: what all languages share, the formulas of inputs, conditions and sums; and Python.

A language says how it writes their parts, and puts the formulas together in a function of its own.
Python's are the formulas as they stand here.
"""

from __future__ import annotations

import ast
import keyword
import math
from typing import TYPE_CHECKING, Any

from driftree.export.recipe import MOST_LOG, OTHER_LEVEL, Leaf, Missing, Number

if TYPE_CHECKING:
    from collections.abc import Iterable

    from driftree.export.recipe import Bend, Feature, Input, Recipe, Split

MOST_EXPONENT = 700.0
"""Exponentials of more than that have no room in a double; of two labels one is then certain."""

LARGEST_WHOLE = 2**53
"""Up to which a double holds all whole numbers."""

RETURNS = {
    "certain": "the probability of each label",
    "logistic": "the probability of each label",
    "softmax": "the probability of each label",
    "identity": "the predicted number",
    "log": "the predicted number",
    "quantiles": "the predicted quantiles",
}


class Dialect:
    """How a language writes formulas and what is done with them; this is Python's way."""

    equal = "=="
    either = "or"
    comment = "#"
    exp = "exp"

    def number(self, value: float) -> str:
        """Return a number with all its digits."""
        return repr(float(value))

    def value(self, feature: int) -> str:
        """Return the name of a feature's value."""
        return f"v{feature}"

    def filled(self, feature: int) -> str:
        """Return the name of a number that counts as its mean if it is missing."""
        return f"f{feature}"

    def input(self, place: int) -> str:
        """Return the name of an input."""
        return f"z{place}"

    def sum(self, output: int) -> str:
        """Return the name of what a leaf adds up."""
        return f"t{output}"

    def is_missing(self, value: str) -> str:
        """Return a test whether a value is missing."""
        return f"{value} != {value}"

    def choose(self, condition: str, yes: str, no: str) -> str:
        """Return one of two, by a condition."""
        return f"{yes} if {condition} else {no}"

    def clip(self, value: str, low: float, high: float) -> str:
        """Return a value that is moved between two limits."""
        return f"min(max({value}, {self.number(low)}), {self.number(high)})"

    # ------------------------------------------------------------------ formulas
    def fill(self, feature: int, shift: float) -> str:
        """Return a number, or what it counts as if it is missing."""
        value = self.value(feature)
        return self.choose(self.is_missing(value), self.number(shift), value)

    def input_text(self, own: Input) -> str:
        """Return the formula of an input."""
        if isinstance(own, Number):
            filled = self.filled(own.feature)
            scaled = f"({filled} - {self.number(own.shift)}) * {self.number(own.factor)}"
            is_plain = own.shift == 0 and own.factor == 1
            return self.clip(filled if is_plain else scaled, -own.limit, own.limit)
        value = self.value(own.feature)
        if isinstance(own, Missing):
            return self.choose(self.is_missing(value), "1.0", "0.0")
        return self.choose(f"{value} {self.equal} {own.value}", "1.0", "0.0")

    def bend_text(self, bend: Bend) -> str:
        """Return the formula of a bend."""
        rise = f"({self.filled(bend.feature)} - {self.number(bend.low)})"
        return self.clip(f"{rise} / {self.number(bend.high - bend.low)}", 0.0, 1.0)

    def condition_text(self, split: Split) -> str:
        """Return the condition under which a row goes left; none holds for a missing value."""
        value = self.value(split.feature)
        missing = self.is_missing(value)
        if split.threshold == -math.inf:
            return missing
        operator = self.equal if split.is_equality else "<="
        test = f"{value} {operator} {self.number(split.threshold)}"
        return f"{missing} {self.either} {test}" if split.missing_left else test

    def sum_text(self, leaf: Leaf, output: int) -> str:
        """Return what a leaf adds up; what has no weight is left out."""
        terms = [(weight, self.input(i)) for i, weight in enumerate(leaf.weights[output])]
        terms += [(weights[output], self.bend_text(bend)) for bend, weights in leaf.bends]
        parts = [self.number(leaf.intercepts[output])]
        parts += [f"{self.number(weight)} * {text}" for weight, text in terms if weight != 0]
        return "(" + "\n        + ".join(parts) + ")"

    def floor_text(self, leaf: Leaf) -> tuple[str, str]:
        """Return the least probability of the second label, and what is above it at most."""
        first, second = leaf.floor
        return self.number(second), self.number(1.0 - first - second)

    def logistic(self, total: str) -> str:
        """Return the logistic function of a sum."""
        clipped = self.clip(total, -MOST_EXPONENT, MOST_EXPONENT)
        return f"1.0 / (1.0 + {self.exp}(-({clipped})))"

    def remark(self, text: str) -> str:
        """Return a comment of one line, which nothing in it ends or continues."""
        words = text.replace("\\", "/").replace("??", "? ?").split()
        return " ".join([self.comment, *words])

    # ------------------------------------------------------------------ statements
    def assign(self, name: str, text: str) -> str:
        """Return a statement that gives a value to a name."""
        return f"{name} = {text}"

    def declare(self, name: str, text: str) -> str:
        """Return a statement that makes a name with a value."""
        return self.assign(name, text)

    def branch(self, condition: str, words: str, left: list[str], right: list[str]) -> list[str]:
        """Return what is done by a condition."""
        begin = f"if {condition}:  {self.remark(words)}"
        return [begin, *indented(left), "else:", *indented(right)]

    def statements(self, recipe: Recipe) -> list[str]:
        """Return what is done between the features' values and the sums of the leaf."""
        lines = [
            self.declare(self.filled(j), self.fill(j, shift)) for j, shift in recipe.shifts.items()
        ]
        lines += [
            f"{self.declare(self.input(i), self.input_text(own))}  {self.remark(recipe.words[i])}"
            for i, own in enumerate(recipe.inputs)
            if is_used(recipe, i)
        ]
        return lines + self._statements_at(recipe, 0)

    def _statements_at(self, recipe: Recipe, node: int) -> list[str]:
        own = recipe.nodes[node]
        if not isinstance(own, Leaf):
            left, right = (self._statements_at(recipe, one) for one in (own.left, own.right))
            return self.branch(self.condition_text(own), own.words, left, right)
        lines = [self.remark(f"leaf {node}")]
        lines += [self.assign(self.sum(k), self.sum_text(own, k)) for k in range(recipe.n_outputs)]
        if recipe.has_floor:
            pair = zip(("floor", "rest"), self.floor_text(own), strict=True)
            lines += [self.assign(name, text) for name, text in pair]
        return lines


def indented(lines: Iterable[str]) -> list[str]:
    """Return lines further to the right."""
    return [f"    {line}" for line in lines]


def is_used(recipe: Recipe, place: int) -> bool:
    """Tell whether a leaf weighs an input."""
    leaves = recipe.leaves.values()
    return any(row[place] != 0 for leaf in leaves for row in leaf.weights)


def used_features(recipe: Recipe) -> set[int]:
    """Return the features that a prediction depends on."""
    inputs = [own for i, own in enumerate(recipe.inputs) if is_used(recipe, i)]
    bends = [bend for leaf in recipe.leaves.values() for bend, _ in leaf.bends]
    parts = (*inputs, *bends, *recipe.splits.values())
    return {own.feature for own in parts} | recipe.shifts.keys()


def check_levels(features: Iterable[Feature]) -> None:
    """Raise if a category has levels that not every language can compare."""
    for feature in features:
        for level in () if feature.levels is None or feature.has_text else feature.levels:
            is_whole = isinstance(level, int) and abs(level) <= LARGEST_WHOLE
            if not is_whole and not isinstance(level, float):
                raise ValueError(
                    f"feature {feature.text!r} has the level {level!r} beside others: levels must "
                    "be all text, or all numbers and booleans that a double can hold; make them "
                    "text, or export to Python"
                )


# ---------------------------------------------------------------------- Python
def python_code(recipe: Recipe, name: str) -> str:
    """Return a module with one function, which needs nothing but Python."""
    if not name.isidentifier() or keyword.iskeyword(name):
        raise ValueError(f"a function of Python cannot be named {name!r}: give an identifier")
    dialect = Dialect()
    values = [
        line
        for j in sorted(used_features(recipe))
        for line in _value(dialect.value(j), recipe.features[j])
    ]
    body = [*values, *dialect.statements(recipe), *_result(recipe, dialect)]
    return "\n".join(
        [
            f'"""{recipe.title}."""',
            "",
            "from math import exp, nan",
            "",
            "",
            f"def {name}(row):",
            f'    """Return {RETURNS[recipe.link]} for a dict of feature names to values.',
            "",
            "    What is absent, None or NaN is missing.",
            '    """',
            *indented(body),
            "",
        ]
    )


def _value(value: str, feature: Feature) -> list[str]:
    """Read a feature: NaN is missing."""
    default = "" if feature.frozen is None else f", {feature.frozen!r}"
    read = f"{value} = row.get({literal(feature.name)}{default})"
    if feature.levels is None:
        return [read, f"{value} = nan if {value} is None else float({value})"]
    places = ", ".join(f"{literal(level)}: {i}" for i, level in enumerate(feature.levels))
    return [
        read,
        f"is_missing = {value} is None or {value} != {value}",
        f"{value} = nan if is_missing else {{{places}}}.get({value}, {OTHER_LEVEL})",
    ]


def _result(recipe: Recipe, dialect: Dialect) -> list[str]:
    labels = [literal(label) for label in recipe.labels]
    sums = ", ".join(dialect.sum(k) for k in range(recipe.n_outputs))
    shift, scale = dialect.number(recipe.shift), dialect.number(recipe.scale)
    if recipe.link == "certain":
        return [f"return {{{labels[0]}: 1.0}}"]
    if recipe.link == "logistic":
        p = dialect.logistic(dialect.sum(0))
        p = f"floor + rest * ({p})" if recipe.has_floor else p
        return [f"p = {p}", f"return {{{labels[0]}: 1.0 - p, {labels[1]}: p}}"]
    if recipe.link == "softmax":
        return [
            f"top = max({sums})",
            f"parts = [exp(t - top) for t in ({sums})]",
            "whole = sum(parts)",
            f"labels = ({', '.join(labels)})",
            "return {label: part / whole for label, part in zip(labels, parts)}",
        ]
    if recipe.link == "quantiles":
        return [
            f"found = sorted(t + offset for t, offset in zip(({sums},), {recipe.offsets!r}))",
            f"return [{shift} + {scale} * t for t in found]",
        ]
    number = dialect.sum(0)
    if recipe.link == "log":
        number = f"exp({dialect.clip(number, -MOST_LOG, MOST_LOG)})"
    return [f"return {shift} + {scale} * {number}"]


def literal(value: Any) -> str:
    """Return a name, a level or a label as Python's source has it.

    Examples
    --------
    >>> literal("van"), literal((1, None))
    ("'van'", '(1, None)')
    """
    text = repr(value)
    try:
        is_same = ast.literal_eval(text) == value
    except (SyntaxError, ValueError):
        is_same = False
    if not is_same:
        raise ValueError(
            f"{text} of type {type(value).__name__!r} cannot be written as source: use text, "
            "numbers or tuples as names, levels and labels"
        )
    return text
