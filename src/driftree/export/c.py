"""C: a recipe as a function of C99."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from driftree.export.dialect import Dialect, check_levels, indented, used_features
from driftree.export.recipe import MOST_LOG, OTHER_LEVEL

if TYPE_CHECKING:
    from driftree.export.recipe import Feature, Recipe


class C(Dialect):
    """How C writes formulas."""

    either = "||"
    comment = "//"

    def sum(self, output: int) -> str:
        """Return the place of what a leaf adds up."""
        return f"t[{output}]"

    def is_missing(self, value: str) -> str:
        """Return a test whether a value is missing."""
        return f"isnan({value})"

    def choose(self, condition: str, yes: str, no: str) -> str:
        """Return one of two, by a condition."""
        return f"({condition} ? {yes} : {no})"

    def clip(self, value: str, low: float, high: float) -> str:
        """Return a value that is moved between two limits."""
        return f"fmin(fmax({value}, {self.number(low)}), {self.number(high)})"

    def assign(self, name: str, text: str) -> str:
        """Return a statement that gives a value to a name."""
        return f"{name} = {text};"

    def declare(self, name: str, text: str) -> str:
        """Return a statement that makes a name with a value."""
        return f"const double {name} = {text};"

    def branch(self, condition: str, words: str, left: list[str], right: list[str]) -> list[str]:
        """Return what is done by a condition."""
        begin = f"if ({condition}) {{  {self.remark(words)}"
        return [begin, *indented(left), "} else {", *indented(right), "}"]


def c_code(recipe: Recipe, name: str) -> str:
    """Return a file with one function, which needs nothing but the standard library."""
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise ValueError(f"a function of C cannot be named {name!r}: give an identifier")
    check_levels(recipe.features)
    dialect = C()
    numbers = [feature for feature in recipe.features if not feature.has_text]
    texts = [feature for feature in recipe.features if feature.has_text]
    parameters = ["const double *numbers"] if numbers else []
    parameters += ["const char *const *texts"] if texts else []
    body = [
        dialect.declare(dialect.value(j), _value(recipe.features[j], numbers, texts))
        for j in sorted(used_features(recipe))
    ]
    body.append(f"double t[{recipe.n_outputs}];")
    if recipe.has_floor:
        body.append("double floor, rest;")
    body += [*dialect.statements(recipe), *_result(recipe, dialect)]
    return "\n".join(
        [
            dialect.remark(recipe.title),
            dialect.remark(""),
            *(dialect.remark(line) for line in _guide(recipe, numbers, texts)),
            "#include <math.h>",
            "#include <string.h>",
            "",
            f"void {name}({', '.join([*parameters, 'double *out'])}) {{",
            *indented(body),
            "}",
            "",
        ]
    )


def _guide(recipe: Recipe, numbers: list[Feature], texts: list[Feature]) -> list[str]:
    """Say what goes in and out."""
    lines = []
    for i, feature in enumerate(numbers):
        missing = "NAN if missing" if feature.frozen is None else f"NAN for {feature.frozen!r}"
        lines.append(f"numbers[{i}]: {feature.text}, {missing}")
    lines += [f"texts[{i}]: {feature.text}, NULL if missing" for i, feature in enumerate(texts)]
    outs = [f"probability of {label!r}" for label in recipe.labels]
    outs = outs or [f"quantile {one:g}" for one in recipe.quantiles] or ["the predicted number"]
    return lines + [f"out[{k}]: {what}" for k, what in enumerate(outs)]


def _value(feature: Feature, numbers: list[Feature], texts: list[Feature]) -> str:
    if feature.has_text:
        place = f"texts[{texts.index(feature)}]"
        tests = [f"strcmp({place}, {_quoted(str(level))}) == 0" for level in feature.levels or ()]
        missing = f"{place} == NULL"
    else:
        place = f"numbers[{numbers.index(feature)}]"
        missing = f"isnan({place})"
        if feature.levels is None:
            return place if feature.frozen is None else f"{missing} ? {feature.frozen!r} : {place}"
        tests = [f"{place} == {float(level)!r}" for level in feature.levels]  # type: ignore[arg-type]
    places = "".join(f"{test} ? {i} : " for i, test in enumerate(tests))
    return f"{missing} ? NAN : {places}{OTHER_LEVEL}"


def _quoted(text: str) -> str:
    """Return a text as a literal of UTF-8."""
    if "\0" in text:
        raise ValueError(f"the level {text!r} holds a NUL, which ends a text in C")
    plain = "".join(
        chr(byte) if 32 <= byte < 127 and byte not in b'"\\?' else f"\\{byte:03o}"
        for byte in text.encode("utf-8", "surrogatepass")
    )
    return f'"{plain}"'


def _result(recipe: Recipe, dialect: C) -> list[str]:
    n = recipe.n_outputs
    shift, scale = dialect.number(recipe.shift), dialect.number(recipe.scale)
    if recipe.link == "certain":
        return ["(void)t;", "out[0] = 1.0;"]
    if recipe.link == "logistic":
        p = dialect.logistic("t[0]")
        p = f"floor + rest * ({p})" if recipe.has_floor else p
        return [f"out[1] = {p};", "out[0] = 1.0 - out[1];"]
    if recipe.link == "softmax":
        return [
            "double top = t[0], sum = 0.0;",
            f"for (int k = 1; k < {n}; k++) top = fmax(top, t[k]);",
            f"for (int k = 0; k < {n}; k++) sum += out[k] = exp(t[k] - top);",
            f"for (int k = 0; k < {n}; k++) out[k] /= sum;",
        ]
    if recipe.link == "quantiles":
        offsets = ", ".join(map(dialect.number, recipe.offsets))
        return [
            f"const double offsets[] = {{{offsets}}};",
            f"for (int k = 0; k < {n}; k++) {{  // in order",
            "    const double own = t[k] + offsets[k];",
            "    int i = k;",
            "    for (; i > 0 && out[i - 1] > own; i--) out[i] = out[i - 1];",
            "    out[i] = own;",
            "}",
            f"for (int k = 0; k < {n}; k++) out[k] = {shift} + {scale} * out[k];",
        ]
    number = "t[0]"
    if recipe.link == "log":
        number = f"exp({dialect.clip(number, -MOST_LOG, MOST_LOG)})"
    return [f"out[0] = {shift} + {scale} * {number};"]
