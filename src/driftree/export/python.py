"""Python: a recipe as a function of a dict."""

from __future__ import annotations

import ast
import keyword
from typing import TYPE_CHECKING, Any

from driftree.export.dialect import Dialect, indented, used_features
from driftree.export.recipe import MOST_LOG, OTHER_LEVEL

if TYPE_CHECKING:
    from driftree.export.recipe import Feature, Recipe

RETURNS = {
    "certain": "the probability of each label",
    "logistic": "the probability of each label",
    "softmax": "the probability of each label",
    "identity": "the predicted number",
    "log": "the predicted number",
    "quantiles": "the predicted quantiles",
}


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
