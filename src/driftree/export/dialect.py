"""Dialect: what all languages share, the formulas of inputs, conditions and sums; and Python.

A language defines the syntax of their parts, and combines the formulas in a function of its own.
The formulas here are Python's.
"""

from __future__ import annotations

import ast
import keyword
import math
from typing import TYPE_CHECKING, Any

from driftree.export.recipe import (
    OTHER_LEVEL,
    ForestRecipe,
    Leaf,
    Missing,
    Number,
)
from driftree.learn.units import MOST_LOG

if TYPE_CHECKING:
    from collections.abc import Iterable

    from driftree.export.recipe import (
        AnyRecipe,
        Bend,
        Feature,
        Hinge,
        Input,
        Recipe,
        Scale,
        Split,
    )

MOST_EXPONENT = 700.0
"""Exponentials of larger numbers overflow a double; one of two labels is then certain."""

LARGEST_WHOLE = 2**53
"""Up to this a double represents all whole numbers."""

MOST_TERMS = 400
"""Of one sum: SQLite allows expressions of depth 1,000, Python's compiler some thousands."""


class Dialect:
    """The syntax of formulas and statements; this is Python's."""

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
        """Return the name of a number, imputed by its mean if missing."""
        return f"f{feature}"

    def input(self, place: int) -> str:
        """Return the name of an input."""
        return f"z{place}"

    def sum(self, output: int) -> str:
        """Return the name of a leaf's sum."""
        return f"t{output}"

    def scaled(self, feature: int) -> str:
        """Return the name of a number as scaled for hinges."""
        return f"s{feature}"

    def own(self, word: str) -> str:
        """Return the name of another number of a leaf."""
        return word

    def is_missing(self, value: str) -> str:
        """Return a test for a missing value."""
        return f"{value} != {value}"

    def choose(self, condition: str, yes: str, no: str) -> str:
        """Return one of two, by a condition."""
        return f"{yes} if {condition} else {no}"

    def clip(self, value: str, low: float, high: float) -> str:
        """Return a value clipped to two limits."""
        return f"min(max({value}, {self.number(low)}), {self.number(high)})"

    def positive(self, value: str) -> str:
        """Return the positive part of a value."""
        return f"max(0.0, {value})"

    # ------------------------------------------------------------------ formulas
    def scaled_text(self, feature: int, scale: Scale) -> str:
        """Return the formula of a number as scaled for hinges."""
        value = self.value(feature)
        away = f"({value} - {self.number(scale.shift)}) * {self.number(scale.factor)}"
        return self.choose(
            self.is_missing(value), self.number(0.0), self.clip(away, -scale.most, scale.most)
        )

    def hinge_text(self, hinge: Hinge) -> str:
        """Return the formula of a hinge."""
        first, second, constant = map(self.number, hinge.slopes)
        p, q = map(self.scaled, hinge.ends)
        return self.positive(f"{first} * {p} + {second} * {q} + {constant}")

    def number_texts(self, recipe: Recipe) -> list[str]:
        """Return the predicted number and, if wanted, the ends of its interval."""
        number, half = self.sum(0), self.own("half")
        if recipe.link == "log":
            clipped = self.clip(number, -MOST_LOG, MOST_LOG)
            number = f"{self.exp}({clipped})"
            root = self.number((recipe.power or 0.0) / 2)
            half = f"{half} * {self.exp}({root} * ({clipped}))"
        found = [number]
        if recipe.power is not None:
            low = f"({number} - {half})"
            found += [self.positive(low) if recipe.link == "log" else low, f"({number} + {half})"]
        return [self.in_units(recipe, text) for text in found]

    def in_units(self, recipe: Recipe, text: str) -> str:
        """Return a number in the target's unit."""
        return f"{self.number(recipe.shift)} + {self.number(recipe.scale)} * {text}"

    def mixed_text(self, recipe: ForestRecipe, probability: str) -> str:
        """Return a probability mixed with the uniform distribution."""
        equal = self.number(recipe.mixed / len(recipe.labels))
        return f"{self.number(1.0 - recipe.mixed)} * {probability} + {equal}"

    def fill(self, feature: int, shift: float) -> str:
        """Return a number, or its imputed value if it is missing."""
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
        """Return the condition under which a row goes left; it is false for missing values."""
        value = self.value(split.feature)
        missing = self.is_missing(value)
        if split.threshold == -math.inf:
            return missing
        operator = self.equal if split.is_equality else "<="
        test = f"{value} {operator} {self.number(split.threshold)}"
        return f"{missing} {self.either} {test}" if split.missing_left else test

    def sum_text(self, leaf: Leaf, output: int) -> str:
        """Return a leaf's sum; inputs without a weight are left out."""
        terms = [(weight, self.input(i)) for i, weight in enumerate(leaf.weights[output])]
        terms += [(weights[output], self.bend_text(bend)) for bend, weights in leaf.bends]
        parts = [self.number(leaf.intercepts[output])]
        parts += [f"{self.number(weight)} * {text}" for weight, text in terms if weight != 0]
        return self._added(parts)

    def _added(self, parts: list[str]) -> str:
        """Return a sum; a long one is a sum of sums, as parsers limit the depth of expressions."""
        while len(parts) > MOST_TERMS:
            groups = range(0, len(parts), MOST_TERMS)
            parts = [self._added(parts[i : i + MOST_TERMS]) for i in groups]
        return "(" + "\n        + ".join(parts) + ")"

    def floor_text(self, leaf: Leaf) -> tuple[str, str]:
        """Return the least probability of the second label, and the range above it."""
        first, second = leaf.floor
        return self.number(second), self.number(1.0 - first - second)

    def logistic(self, total: str) -> str:
        """Return the logistic function of a sum."""
        clipped = self.clip(total, -MOST_EXPONENT, MOST_EXPONENT)
        return f"1.0 / (1.0 + {self.exp}(-({clipped})))"

    def remark(self, text: str) -> str:
        """Return a comment of one line, safely escaped."""
        words = text.replace("\\", "/").replace("??", "? ?").split()
        return " ".join([self.comment, *words])

    # ------------------------------------------------------------------ statements
    def assign(self, name: str, text: str) -> str:
        """Return an assignment."""
        return f"{name} = {text}"

    def declare(self, name: str, text: str) -> str:
        """Return a declaration with a value."""
        return self.assign(name, text)

    def branch(self, condition: str, words: str, left: list[str], right: list[str]) -> list[str]:
        """Return an if statement."""
        begin = f"if {condition}:  {self.remark(words)}"
        return [begin, *indented(left), "else:", *indented(right)]

    def statements(self, recipe: Recipe) -> list[str]:
        """Return the statements from the features' values to the sums of the leaf."""
        lines = [
            self.declare(self.filled(j), self.fill(j, shift)) for j, shift in recipe.shifts.items()
        ]
        lines += [
            f"{self.declare(self.input(i), self.input_text(own))}  {self.remark(recipe.words[i])}"
            for i, own in recipe.used_inputs.items()
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
        if recipe.power is not None:
            lines.append(self.assign(self.own("half"), self.number(own.half)))
        return lines

    def hinge_statements(self, recipe: AnyRecipe) -> list[str]:
        """Return the statements from the features' values to the hinges of a forest."""
        _, ends, hinges = used_values(recipe)
        if not isinstance(recipe, ForestRecipe):
            return []
        texts = {self.scaled(j): self.scaled_text(j, recipe.scales[j]) for j in ends}
        texts |= {self.value(j): self.hinge_text(recipe.hinges[j]) for j in hinges}
        return [self.declare(name, text) for name, text in texts.items()]


def indented(lines: Iterable[str]) -> list[str]:
    """Return indented lines."""
    return [f"    {line}" for line in lines]


def used_features(recipe: Recipe) -> set[int]:
    """Return the features that a prediction depends on."""
    bends = [bend for leaf in recipe.leaves.values() for bend, _ in leaf.bends]
    return {own.feature for own in (*recipe.used_inputs.values(), *bends, *recipe.splits.values())}


def used_values(recipe: AnyRecipe) -> tuple[list[int], list[int], list[int]]:
    """Return the features that are read, those that hinges use, and the hinges."""
    used = {j for member in recipe.members for j in used_features(member)}
    hinges = used & recipe.hinges.keys()
    ends = {end for j in hinges for end in recipe.hinges[j].ends}
    return sorted((used - hinges) | ends), sorted(ends), sorted(hinges)


def check_levels(features: Iterable[Feature]) -> None:
    """Raise if a category has levels that not all languages can compare."""
    for feature in features:
        for level in () if feature.levels is None or feature.has_text else feature.levels:
            is_whole = isinstance(level, int) and abs(level) <= LARGEST_WHOLE
            if not is_whole and not isinstance(level, float):
                raise ValueError(
                    f"feature {feature.text!r} mixes the level {level!r} with others: levels must "
                    "be all text, or all numbers and booleans that a double can hold; make them "
                    "text, or export to Python"
                )


def check_name(name: str, language: str, *, is_taken: bool) -> None:
    """Raise if a function cannot have a name, or if it would hide one that it needs."""
    if is_taken:
        raise ValueError(
            f"a {language} function cannot be named {name!r}, which has a meaning in {language}: "
            "give another name"
        )
    if not name.isidentifier() or (language == "C" and not name.isascii()):
        raise ValueError(f"a {language} function cannot be named {name!r}: give an identifier")


# ---------------------------------------------------------------------- Python
TAKEN = ("exp", "float", "len", "log", "max", "min", "nan", "sorted", "sum", "zip", "__debug__")
"""Names that the function uses, and one that Python reserves."""


def python_code(recipe: AnyRecipe, name: str) -> str:
    """Return a module with one function, which needs only Python."""
    check_name(name, "Python", is_taken=keyword.iskeyword(name) or name in TAKEN)
    dialect = Dialect()
    values = [
        line
        for j in used_values(recipe)[0]
        for line in _value(dialect.value(j), recipe.features[j])
    ]
    body = [*values, *dialect.hinge_statements(recipe), *_python_body(recipe, dialect)]
    return "\n".join(
        [
            f'"""{recipe.title}."""',
            "",
            "from math import exp, log, nan",
            "",
            "",
            f"def {name}(row):",
            f'    """Return {_returned(recipe)} for a dict of feature names to values.',
            "",
            "    What is absent, None or NaN is missing.",
            '    """',
            *indented(body),
            "",
        ]
    )


def _value(value: str, feature: Feature) -> list[str]:
    """Return the statements that read a feature; NaN is missing."""
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


def _returned(recipe: AnyRecipe) -> str:
    if recipe.labels:
        return "the probability of each label"
    if recipe.quantiles:
        return "the predicted quantiles"
    has_ends = recipe.members[0].power is not None
    return "the number and the ends of its interval" if has_ends else "the predicted number"


def _python_body(recipe: AnyRecipe, dialect: Dialect) -> list[str]:
    """Return the statements after the values are read."""
    if isinstance(recipe, ForestRecipe):
        lines, found = _python_forest(recipe, dialect)
    else:
        lines, found = _python_tree(recipe, dialect)
    if recipe.labels:
        pairs = zip(map(literal, recipe.labels), found, strict=True)
        return [*lines, f"return {{{', '.join(f'{label}: {text}' for label, text in pairs)}}}"]
    listed = ", ".join(found)
    if recipe.quantiles:
        return [*lines, f"return [{listed}]"]
    return [*lines, f"return {listed}"]


def _python_tree(recipe: Recipe, dialect: Dialect) -> tuple[list[str], list[str]]:
    """Return the statements of a tree, and the formulas of its prediction."""
    if recipe.link == "certain":
        return [], ["1.0"]
    lines = dialect.statements(recipe)
    sums = ", ".join(dialect.sum(k) for k in range(recipe.n_outputs))
    if recipe.link == "logistic":
        p = dialect.logistic(dialect.sum(0))
        p = f"floor + rest * ({p})" if recipe.has_floor else p
        return [*lines, f"p = {p}"], ["1.0 - p", "p"]
    if recipe.link == "softmax":
        return [*lines, *_python_softmax(f"({sums})")], _parts(recipe)
    if recipe.link == "quantiles":
        moved = f"zip(({sums},), {recipe.offsets!r})"
        lines = [*lines, f"found = sorted(t + offset for t, offset in {moved})"]
        return lines, [dialect.in_units(recipe, f"found[{k}]") for k in range(recipe.n_outputs)]
    return lines, dialect.number_texts(recipe)


def _python_softmax(sums: str) -> list[str]:
    return [f"top = max({sums})", f"parts = [exp(t - top) for t in {sums}]", "whole = sum(parts)"]


def _parts(recipe: AnyRecipe) -> list[str]:
    return [f"parts[{k}] / whole" for k in range(len(recipe.labels))]


def _python_forest(recipe: ForestRecipe, dialect: Dialect) -> tuple[list[str], list[str]]:
    """Return the statements of all trees, and the formulas of the forest's prediction."""
    lines = ["said = []"]
    for member in recipe.members:
        own, found = _python_tree(member, dialect)
        lines += [dialect.remark(member.title), *own, f"said.append(({', '.join(found)},))"]
    lines.append(f"weights = {tuple(recipe.weights)!r}")
    if recipe.labels:
        lines += [
            "total = [0.0] * len(said[0])",
            "for weight, one in zip(weights, said):",
            f"    logs = [log({dialect.mixed_text(recipe, 'p')}) for p in one]",
            "    mean = sum(logs) / len(logs)",
            "    total = [t + weight * (own - mean) for t, own in zip(total, logs)]",
        ]
        return [*lines, *_python_softmax("total")], _parts(recipe)
    lines.append("found = [sum(w * t for w, t in zip(weights, one)) for one in zip(*said)]")
    if recipe.leader.link == "log":  # counts: the logarithms are added up
        logs = "log(max(one[0], 1e-300))"
        lines.append(f"found[0] = exp(sum(w * {logs} for w, one in zip(weights, said)))")
    if recipe.leader.power is not None:
        away = "sum(abs(w) * (one[k] - one[0]) for w, one in zip(weights, said))"
        lines.append(f"found[1:] = [found[0] + {away} for k in (1, 2)]")
        if recipe.leader.link == "log":
            lines.append("found[1] = max(0.0, found[1])")
    n = len(recipe.quantiles) or (1 if recipe.leader.power is None else 3)
    if recipe.quantiles:
        return lines, [f"max(found[: {k + 1}])" for k in range(n)]
    return lines, [f"found[{k}]" for k in range(n)]


def literal(value: Any) -> str:
    """Return a name, a level or a label as a Python literal.

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
            f"{text} of type {type(value).__name__!r} cannot be written as source code: use text, "
            "numbers or tuples as names, levels and labels"
        )
    return text
