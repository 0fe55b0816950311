"""SQL: a recipe as a query over a table with a column per feature."""

from __future__ import annotations

from typing import TYPE_CHECKING

from driftree.export.dialect import (
    MOST_EXPONENT,
    Dialect,
    check_levels,
    indented,
    is_used,
    used_features,
)
from driftree.export.recipe import MOST_LOG, OTHER_LEVEL, Leaf
from driftree.learn.words import distinct_texts

if TYPE_CHECKING:
    from collections.abc import Hashable

    from driftree.export.recipe import Feature, Recipe


class SQL(Dialect):
    """How SQL writes formulas: in words that every engine knows."""

    equal = "="
    either = "OR"
    comment = "--"
    exp = "EXP"

    def number(self, value: float) -> str:
        """Return a double: without an exponent it would be a decimal number."""
        text = repr(float(value))
        return text if "e" in text else f"{text}e0"

    def value(self, feature: int) -> str:
        """Return the name of a feature's value."""
        return f"_v{feature}"

    def filled(self, feature: int) -> str:
        """Return the name of a number that counts as its mean if it is missing."""
        return f"_f{feature}"

    def input(self, place: int) -> str:
        """Return the name of an input."""
        return f"_z{place}"

    def sum(self, output: int) -> str:
        """Return the name of what a leaf adds up."""
        return f"_t{output}"

    def is_missing(self, value: str) -> str:
        """Return a test whether a value is missing."""
        return f"{value} IS NULL"

    def choose(self, condition: str, yes: str, no: str) -> str:
        """Return one of two, by a condition."""
        return f"CASE WHEN {condition} THEN {yes} ELSE {no} END"

    def clip(self, value: str, low: float, high: float) -> str:
        """Return a value that is moved between two limits."""
        least, most = self.number(low), self.number(high)
        return (
            f"CASE WHEN {value} < {least} THEN {least} WHEN {value} > {most} THEN {most} "
            f"ELSE {value} END"
        )


def sql_code(recipe: Recipe, name: str) -> str:
    """Return a query that adds predictions to the columns of a table."""
    check_levels(recipe.features)
    dialect = SQL()
    values = {
        dialect.value(j): _value(recipe.features[j], dialect) for j in sorted(used_features(recipe))
    }
    filled = {dialect.filled(j): dialect.fill(j, shift) for j, shift in recipe.shifts.items()}
    inputs = {
        dialect.input(i): dialect.input_text(own)
        for i, own in enumerate(recipe.inputs)
        if is_used(recipe, i)
    }
    stages = [
        values,
        filled | {"_leaf": _leaf_text(recipe, dialect, 0)},
        inputs,
        _sums(recipe, dialect),
    ]
    *links, result = _links(recipe, dialect)
    text = [dialect.remark(recipe.title)]
    text += [dialect.remark(line) for line in _guide(recipe, name)]
    source = _quoted_name(name)
    for i, columns in enumerate(stage for stage in (*stages, *links) if stage):
        text.append(f"{', ' if i else 'WITH '}_{i + 1} AS MATERIALIZED (")
        text += [*_select(columns, source), ")"]
        source = f"_{i + 1}"
    shown = {_quoted_name(key): value for key, value in result.items()}
    return "\n".join([*text, *_select(shown, source), ""])


def _select(columns: dict[str, str], source: str) -> list[str]:
    lines = [f", {text} AS {name}" for name, text in columns.items()]
    return ["SELECT *", *indented(lines), f"FROM {source}"]


def _guide(recipe: Recipe, name: str) -> list[str]:
    columns = [feature.text for feature in recipe.features if feature.frozen is None]
    lines = [f"reads {name}: a column for each of {', '.join(columns)}; NULL is missing"]
    lines += [
        f"{feature.text} is {feature.frozen!r}, as it was then"
        for feature in recipe.features
        if feature.frozen is not None
    ]
    return lines


def _value(feature: Feature, dialect: SQL) -> str:
    """Return a feature's value; one that the table does not have is what it was at export."""
    if feature.frozen is not None:
        return dialect.number(feature.frozen)
    column = _quoted_name(str(feature.name))
    if feature.levels is None:
        return column
    tests = [
        f"WHEN {column} = {_level(level, dialect)} THEN {i}"
        for i, level in enumerate(feature.levels)
    ]
    return " ".join([f"CASE WHEN {column} IS NULL THEN NULL", *tests, f"ELSE {OTHER_LEVEL} END"])


def _level(level: Hashable, dialect: SQL) -> str:
    if isinstance(level, bool):
        return "TRUE" if level else "FALSE"
    if isinstance(level, str):
        if "\0" in level:
            raise ValueError(f"the level {level!r} holds a NUL, which SQL cannot write")
        return "'" + level.replace("'", "''") + "'"
    return str(level) if isinstance(level, int) else dialect.number(level)  # type: ignore[arg-type]


def _quoted_name(name: str) -> str:
    if "\0" in name or not name:
        raise ValueError(f"a column or a table of SQL cannot be named {name!r}: rename it")
    return '"' + name.replace('"', '""') + '"'


def _leaf_text(recipe: Recipe, dialect: SQL, node: int) -> str:
    own = recipe.nodes[node]
    if isinstance(own, Leaf):
        return str(node)
    left, right = (_leaf_text(recipe, dialect, child) for child in (own.left, own.right))
    return dialect.choose(dialect.condition_text(own), left, right)


def _by_leaf(texts: dict[int, str]) -> str:
    """Return what each leaf says."""
    if len(texts) == 1:
        return next(iter(texts.values()))
    return " ".join(
        ["CASE _leaf", *(f"WHEN {leaf} THEN {text}" for leaf, text in texts.items()), "END"]
    )


def _sums(recipe: Recipe, dialect: SQL) -> dict[str, str]:
    leaves = recipe.leaves
    columns = {
        dialect.sum(k): _by_leaf({leaf: dialect.sum_text(own, k) for leaf, own in leaves.items()})
        for k in range(recipe.n_outputs)
    }
    if recipe.has_floor:
        floors = {leaf: dialect.floor_text(own) for leaf, own in leaves.items()}
        columns["_floor"] = _by_leaf({leaf: floor for leaf, (floor, _) in floors.items()})
        columns["_rest"] = _by_leaf({leaf: rest for leaf, (_, rest) in floors.items()})
    return columns


def _links(recipe: Recipe, dialect: SQL) -> list[dict[str, str]]:
    """Return the columns from the sums to the predictions, which come last."""
    sums = [dialect.sum(k) for k in range(recipe.n_outputs)]
    names = distinct_texts(
        (f"probability of {label}" for label in recipe.labels),
        (f"probability of {label!r}" for label in recipe.labels),
    )
    if recipe.link == "certain":
        return [{names[0]: "1.0e0"}]
    if recipe.link == "logistic":
        p = dialect.logistic(sums[0])
        p = f"_floor + _rest * ({p})" if recipe.has_floor else p
        return [{"_p": p}, {names[0]: "1.0 - _p", names[1]: "_p"}]
    if recipe.link == "softmax":
        return _softmax(sums, names, dialect)
    shift, scale = dialect.number(recipe.shift), dialect.number(recipe.scale)
    if recipe.link == "quantiles":
        steps, found = _in_order(recipe, sums, dialect)
        ends = [f"quantile {one:g}" for one in recipe.quantiles]
        numbers = {end: f"{shift} + {scale} * {own}" for end, own in zip(ends, found, strict=True)}
        return [*steps, numbers]
    number = sums[0]
    if recipe.link == "log":
        number = f"EXP({dialect.clip(number, -MOST_LOG, MOST_LOG)})"
    return [{"prediction": f"{shift} + {scale} * {number}"}]


def _softmax(sums: list[str], names: list[str], dialect: SQL) -> list[dict[str, str]]:
    top = [" AND ".join(f"{own} >= {other}" for other in sums if other != own) for own in sums]
    highest = " ".join(
        ["CASE", *(f"WHEN {test} THEN {own}" for own, test in zip(sums, top, strict=True)), "END"]
    )
    parts = {
        f"_p{k}": f"EXP({dialect.clip(f'{own} - _top', -MOST_EXPONENT, 0.0)})"
        for k, own in enumerate(sums)
    }
    return [
        {"_top": highest},
        parts,
        {"_whole": " + ".join(parts)},
        {name: f"{part} / _whole" for name, part in zip(names, parts, strict=True)},
    ]


def _in_order(
    recipe: Recipe, sums: list[str], dialect: SQL
) -> tuple[list[dict[str, str]], list[str]]:
    """Return the columns that put the quantiles in order, and the names of the last ones."""
    moved = [f"{own} + {dialect.number(o)}" for own, o in zip(sums, recipe.offsets, strict=True)]
    steps, n = [{f"_q{k}": text for k, text in enumerate(moved)}], len(sums)
    sums = list(steps[0])
    for turn in range(n):  # neighbours change places
        names, columns = [f"_s{turn}_{k}" for k in range(n)], list(sums)
        for k in range(turn % 2, n - 1, 2):
            first, second = sums[k], sums[k + 1]
            columns[k] = dialect.choose(f"{first} <= {second}", first, second)
            columns[k + 1] = dialect.choose(f"{first} <= {second}", second, first)
        steps.append(dict(zip(names, columns, strict=True)))
        sums = names
    return steps, sums
