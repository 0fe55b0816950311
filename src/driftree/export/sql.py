"""SQL: a recipe as a query over a table with a column per feature."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from driftree.export.dialect import (
    MOST_EXPONENT,
    Dialect,
    check_levels,
    indented,
    used_values,
)
from driftree.export.recipe import OTHER_LEVEL, ForestRecipe, Leaf
from driftree.learn.validation import distinct_texts

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence, Sized

    from driftree.export.recipe import AnyRecipe, Feature, Recipe

MOST_COLUMNS = 1600
"""About PostgreSQL's limit; SQLite's is 2,000."""


class SQL(Dialect):
    """The syntax of SQL, as far as all databases support it."""

    equal = "="
    either = "OR"
    comment = "--"
    exp = "EXP"

    def __init__(self, lead: str, tree: str = "") -> None:
        self.lead = lead  # of all columns that are not the table's
        self.prefix = lead + tree  # of a tree's own columns

    def number(self, value: float) -> str:
        """Return a double: without an exponent it would be a decimal number."""
        text = repr(float(value))
        return text if "e" in text else f"{text}e0"

    def value(self, feature: int) -> str:
        """Return the name of a feature's value."""
        return f"{self.lead}v{feature}"

    def filled(self, feature: int) -> str:
        """Return the name of a number, imputed by its mean if missing."""
        return f"{self.prefix}f{feature}"

    def input(self, place: int) -> str:
        """Return the name of an input."""
        return f"{self.prefix}z{place}"

    def sum(self, output: int) -> str:
        """Return the name of a leaf's sum."""
        return f"{self.prefix}t{output}"

    def scaled(self, feature: int) -> str:
        """Return the name of a number as scaled for hinges."""
        return f"{self.lead}s{feature}"

    def own(self, word: str) -> str:
        """Return the name of another number of a leaf."""
        return f"{self.prefix}{word}"

    def positive(self, value: str) -> str:
        """Return the positive part of a value."""
        return f"CASE WHEN {value} > 0.0e0 THEN {value} ELSE 0.0e0 END"

    def is_missing(self, value: str) -> str:
        """Return a test for a missing value."""
        return f"{value} IS NULL"

    def choose(self, condition: str, yes: str, no: str) -> str:
        """Return one of two, by a condition."""
        return f"CASE WHEN {condition} THEN {yes} ELSE {no} END"

    def clip(self, value: str, low: float, high: float) -> str:
        """Return a value clipped to two limits."""
        least, most = self.number(low), self.number(high)
        return (
            f"CASE WHEN {value} < {least} THEN {least} WHEN {value} > {most} THEN {most} "
            f"ELSE {value} END"
        )


def sql_code(recipe: AnyRecipe, name: str) -> str:
    """Return a query that adds predictions to the columns of a table."""
    check_levels(recipe.features)
    columns_read = _columns_read(recipe)
    dialect = SQL(_lead([name, *columns_read]))
    features, ends, hinges = used_values(recipe)
    stages = [{dialect.value(j): _value(recipe.features[j], dialect) for j in features}]
    if isinstance(recipe, ForestRecipe):
        stages.append({dialect.scaled(j): dialect.scaled_text(j, recipe.scales[j]) for j in ends})
        stages.append({dialect.value(j): dialect.hinge_text(recipe.hinges[j]) for j in hinges})
        stages += _forest(recipe, dialect)
    else:
        stages += _tree(recipe, dialect)
    *steps, result = stages
    _check_width(recipe, stages)
    text = [dialect.remark(recipe.title)]
    text += [dialect.remark(line) for line in _guide(recipe, name)]
    source = _quoted_name(name)
    for i, columns in enumerate(stage for stage in steps if stage):
        part = dialect.own(str(i + 1))
        text.append(f"{', ' if i else 'WITH '}{part} AS MATERIALIZED (")
        text += [*_select(columns, source), ")"]
        source = part
    names = map(_quoted_name, _names(recipe, columns_read))
    return "\n".join([*text, *_select(dict(zip(names, result, strict=True)), source), ""])


def _columns_read(recipe: AnyRecipe) -> list[str]:
    """Return the names of the columns that the query reads."""
    names = [str(feature.name) for feature in recipe.features if feature.frozen is None]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(
                f"several features would be read from the column {name!r}, as their names are the "
                "same as text: rename them"
            )
    return names


def _lead(names: list[str]) -> str:
    """Return so many underscores that no name begins with them."""
    return "_" * (1 + max(len(name) - len(name.lstrip("_")) for name in names))


def _check_width(recipe: AnyRecipe, stages: Sequence[Sized]) -> None:
    n_columns = sum(map(len, stages)) + len(recipe.features)
    if n_columns > MOST_COLUMNS:
        raise ValueError(
            f"the query would have {n_columns:,} columns, but databases allow about "
            f"{MOST_COLUMNS:,}: learn fewer trees or features, or export to C or ONNX"
        )


def _names(recipe: AnyRecipe, columns_read: list[str]) -> list[str]:
    """Return the names of the columns with the predictions, different from those of features."""
    taken = {name.lower() for name in columns_read}
    return [f"{name} by the model" if name.lower() in taken else name for name in _said(recipe)]


def _said(recipe: AnyRecipe) -> list[str]:
    """Return what is predicted."""
    if recipe.labels:
        return distinct_texts(
            (f"probability of {label}" for label in recipe.labels),
            (f"probability of {label!r}" for label in recipe.labels),
        )
    if recipe.quantiles:
        return distinct_texts(
            (f"quantile {one:g}" for one in recipe.quantiles),
            (f"quantile {one!r}" for one in recipe.quantiles),
        )
    has_ends = recipe.members[0].power is not None
    return ["prediction", "lower", "upper"] if has_ends else ["prediction"]


def _tree(recipe: Recipe, dialect: SQL) -> list[Any]:
    """Return the columns from the values to a tree's prediction, the last as a list of formulas."""
    filled = {dialect.filled(j): dialect.fill(j, shift) for j, shift in recipe.shifts.items()}
    inputs = {dialect.input(i): dialect.input_text(own) for i, own in recipe.used_inputs.items()}
    leaf = {dialect.own("leaf"): _leaf_text(recipe, dialect, 0)}
    return [filled | leaf, inputs, _sums(recipe, dialect), *_links(recipe, dialect)]


def _forest(recipe: ForestRecipe, dialect: SQL) -> list[Any]:
    """Return the columns from the values to the forest's prediction, in the same way."""
    if recipe.leader.link == "certain":
        return _links(recipe.leader, dialect)
    said: list[list[str]] = []
    stages: list[Any] = []
    for m, member in enumerate(recipe.members):
        own_dialect = SQL(dialect.lead, f"{m}_")
        *steps, found = _tree(member, own_dialect)
        said.append([own_dialect.own(f"p{k}") for k in range(len(found))])
        stages += [*steps, dict(zip(said[m], found, strict=True))]

    def add(texts: Iterable[str], weights: Iterable[float] = recipe.weights) -> str:
        pairs = zip(map(dialect.number, weights), texts, strict=True)
        return " + ".join(f"{weight} * {text}" for weight, text in pairs)

    if recipe.labels:
        n = len(recipe.labels)
        logs = {f"{p}l": f"LN({dialect.mixed_text(recipe, p)})" for one in said for p in one}
        means = {
            dialect.own(f"{m}_mean"): f"({' + '.join(f'{p}l' for p in one)}) / {dialect.number(n)}"
            for m, one in enumerate(said)
        }
        sums = {
            dialect.sum(k): add(
                f"({one[k]}l - {mean})" for mean, one in zip(means, said, strict=True)
            )
            for k in range(n)
        }
        return [*stages, logs, means, sums, *_softmax(list(sums), dialect)]
    found = [add(one) for one in zip(*said, strict=True)]
    if recipe.leader.link == "log":  # counts: the logarithms are added up
        least = dialect.number(1e-300)
        logs = {f"{p}l": f"LN(CASE WHEN {p} > {least} THEN {p} ELSE {least} END)" for p, *_ in said}
        stages.append(logs)
        found[0] = f"EXP({add(logs)})"
    if recipe.leader.power is not None:
        number = dialect.own("number")
        stages.append({number: found[0]})
        shares = [abs(weight) for weight in recipe.weights]
        away = [add((f"({one[k]} - {one[0]})" for one in said), shares) for k in (1, 2)]
        low, high = (f"({number} + {text})" for text in away)
        found = [number, dialect.positive(low) if recipe.leader.link == "log" else low, high]
    for k in range(1, len(recipe.quantiles)):  # each is at least the one before
        below = dialect.own(f"q{k - 1}")
        stages.append({below: found[k - 1]})
        found[k - 1 : k + 1] = [below, dialect.choose(f"({found[k]}) > {below}", found[k], below)]
    return [*stages, found]


def _select(columns: dict[str, str], source: str) -> list[str]:
    lines = [f", {text} AS {name}" for name, text in columns.items()]
    return ["SELECT *", *indented(lines), f"FROM {source}"]


def _guide(recipe: AnyRecipe, name: str) -> list[str]:
    columns = [feature.text for feature in recipe.features if feature.frozen is None]
    lines = [f"reads {name}: a column for each of {', '.join(columns)}; NULL is missing"]
    lines += [
        f"{feature.text} is {'NULL' if math.isnan(feature.frozen) else repr(feature.frozen)}, "
        "as it was then"
        for feature in recipe.features
        if feature.frozen is not None
    ]
    return lines


def _value(feature: Feature, dialect: SQL) -> str:
    """Return a feature's value; recent targets have their value at export."""
    if feature.frozen is not None:
        is_missing = math.isnan(feature.frozen)  # a NULL of type double, in any database
        return "NULLIF(0e0, 0e0)" if is_missing else dialect.number(feature.frozen)
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
    if isinstance(level, float) and not math.isfinite(level):
        raise ValueError(f"the level {level!r} is not finite, which SQL cannot write")
    return str(level) if isinstance(level, int) else dialect.number(level)  # type: ignore[arg-type]


def _quoted_name(name: str) -> str:
    if "\0" in name or not name:
        raise ValueError(f"an SQL column or table cannot be named {name!r}: rename it")
    return '"' + name.replace('"', '""') + '"'


def _leaf_text(recipe: Recipe, dialect: SQL, node: int) -> str:
    own = recipe.nodes[node]
    if isinstance(own, Leaf):
        return str(node)
    left, right = (_leaf_text(recipe, dialect, child) for child in (own.left, own.right))
    return dialect.choose(dialect.condition_text(own), left, right)


def _by_leaf(leaf_name: str, texts: dict[int, str]) -> str:
    """Return a CASE expression over the leaves."""
    if len(texts) == 1:
        return next(iter(texts.values()))
    return " ".join(
        [f"CASE {leaf_name}", *(f"WHEN {leaf} THEN {text}" for leaf, text in texts.items()), "END"]
    )


def _sums(recipe: Recipe, dialect: SQL) -> dict[str, str]:
    leaves, name = recipe.leaves, dialect.own("leaf")
    texts = {
        dialect.sum(k): {leaf: dialect.sum_text(own, k) for leaf, own in leaves.items()}
        for k in range(recipe.n_outputs)
    }
    if recipe.has_floor:
        floors = {leaf: dialect.floor_text(own) for leaf, own in leaves.items()}
        texts[dialect.own("floor")] = {leaf: floor for leaf, (floor, _) in floors.items()}
        texts[dialect.own("rest")] = {leaf: rest for leaf, (_, rest) in floors.items()}
    if recipe.power is not None:
        texts[dialect.own("half")] = {
            leaf: dialect.number(own.half) for leaf, own in leaves.items()
        }
    return {column: _by_leaf(name, own) for column, own in texts.items()}


def _links(recipe: Recipe, dialect: SQL) -> list[Any]:
    """Return the columns from the sums to a tree's prediction, which is a list of formulas."""
    sums = [dialect.sum(k) for k in range(recipe.n_outputs)]
    if recipe.link == "certain":
        return [["1.0e0"]]
    if recipe.link == "logistic":
        p, name = dialect.logistic(sums[0]), dialect.own("p")
        if recipe.has_floor:
            p = f"{dialect.own('floor')} + {dialect.own('rest')} * ({p})"
        return [{name: p}, [f"1.0 - {name}", name]]
    if recipe.link == "softmax":
        return _softmax(sums, dialect)
    if recipe.link == "quantiles":
        steps, found = _in_order(recipe, sums, dialect)
        return [*steps, [dialect.in_units(recipe, own) for own in found]]
    return [dialect.number_texts(recipe)]


def _softmax(sums: list[str], dialect: SQL) -> list[Any]:
    top = [" AND ".join(f"{own} >= {other}" for other in sums if other != own) for own in sums]
    highest = " ".join(
        ["CASE", *(f"WHEN {test} THEN {own}" for own, test in zip(sums, top, strict=True)), "END"]
    )
    top_name, whole = dialect.own("top"), dialect.own("whole")
    parts = {
        dialect.own(f"e{k}"): f"EXP({dialect.clip(f'{own} - {top_name}', -MOST_EXPONENT, 0.0)})"
        for k, own in enumerate(sums)
    }
    return [
        {top_name: highest},
        parts,
        {whole: " + ".join(parts)},
        [f"{part} / {whole}" for part in parts],
    ]


def _in_order(
    recipe: Recipe, sums: list[str], dialect: SQL
) -> tuple[list[dict[str, str]], list[str]]:
    """Return the columns that sort the quantiles, and the names of the last ones."""
    moved = [f"{own} + {dialect.number(o)}" for own, o in zip(sums, recipe.offsets, strict=True)]
    steps, n = [{dialect.own(f"q{k}"): text for k, text in enumerate(moved)}], len(sums)
    sums = list(steps[0])
    for turn in range(n):  # neighbours are swapped
        names, columns = [dialect.own(f"o{turn}_{k}") for k in range(n)], list(sums)
        for k in range(turn % 2, n - 1, 2):
            first, second = sums[k], sums[k + 1]
            columns[k] = dialect.choose(f"{first} <= {second}", first, second)
            columns[k + 1] = dialect.choose(f"{first} <= {second}", second, first)
        steps.append(dict(zip(names, columns, strict=True)))
        sums = names
    return steps, sums
