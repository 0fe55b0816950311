"""C: a recipe as a C99 function."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

from driftree.export.dialect import Dialect, check_levels, check_name, indented, used_values
from driftree.export.recipe import OTHER_LEVEL, ForestRecipe

if TYPE_CHECKING:
    from driftree.export.recipe import AnyRecipe, Feature, Recipe


TAKEN = re.compile(
    "auto|break|case|char|const|continue|default|do|double|else|enum|extern|float|for|goto|if|"
    "inline|int|long|register|restrict|return|short|signed|sizeof|static|struct|switch|typedef|"
    "union|unsigned|void|volatile|while|_Bool|_Complex|_Imaginary|"
    "INFINITY|NAN|NULL|exp|floor|fmax|fmin|isnan|log|strcmp"
)
"""Keywords, and names of the standard library that the function uses."""


class C(Dialect):
    """How C writes formulas."""

    either = "||"
    comment = "//"

    def sum(self, output: int) -> str:
        """Return the array element of a leaf's sum."""
        return f"t[{output}]"

    def is_missing(self, value: str) -> str:
        """Return a test for a missing value."""
        return f"isnan({value})"

    def choose(self, condition: str, yes: str, no: str) -> str:
        """Return one of two, by a condition."""
        return f"({condition} ? {yes} : {no})"

    def clip(self, value: str, low: float, high: float) -> str:
        """Return a value clipped to two limits."""
        return f"fmin(fmax({value}, {self.number(low)}), {self.number(high)})"

    def positive(self, value: str) -> str:
        """Return the positive part of a value."""
        return f"fmax(0.0, {value})"

    def assign(self, name: str, text: str) -> str:
        """Return an assignment."""
        return f"{name} = {text};"

    def declare(self, name: str, text: str) -> str:
        """Return a declaration with a value."""
        return f"const double {name} = {text};"

    def branch(self, condition: str, words: str, left: list[str], right: list[str]) -> list[str]:
        """Return an if statement."""
        begin = f"if ({condition}) {{  {self.remark(words)}"
        return [begin, *indented(left), "} else {", *indented(right), "}"]


def c_code(recipe: AnyRecipe, name: str) -> str:
    """Return a file with one function, which needs only the standard library."""
    check_name(name, "C", is_taken=bool(TAKEN.fullmatch(name)))
    check_levels(recipe.features)
    dialect = C()
    numbers = [feature for feature in recipe.features if not feature.has_text]
    texts = [feature for feature in recipe.features if feature.has_text]
    parameters = ["const double *numbers"] if numbers else []
    parameters += ["const char *const *texts"] if texts else []
    body = [
        dialect.declare(dialect.value(j), _value(recipe.features[j], numbers, texts))
        for j in used_values(recipe)[0]
    ]
    body += dialect.hinge_statements(recipe)
    if isinstance(recipe, ForestRecipe):
        body += _forest(recipe, dialect)
    else:
        body += _tree(recipe, dialect, "out")
    unused = [one for one in ("numbers", "texts") if not any(f"{one}[" in line for line in body)]
    body = [f"(void){one};" for one in unused if any(one in own for own in parameters)] + body
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


def _tree(recipe: Recipe, dialect: C, out: str) -> list[str]:
    """Return the statements from the values to a tree's prediction, in an array."""
    lines = [f"double t[{recipe.n_outputs}];"]
    if recipe.has_floor:
        lines.append("double floor, rest;")
    if recipe.power is not None:
        lines.append("double half;")
    return [*lines, *dialect.statements(recipe), *_result(recipe, dialect, out)]


def _forest(recipe: ForestRecipe, dialect: C) -> list[str]:
    """Return the statements from the values to the forest's prediction."""
    n_members, n = len(recipe.members), _n_out(recipe)
    weights = ", ".join(map(dialect.number, recipe.weights))
    lines = [f"const double weights[] = {{{weights}}};", f"double said[{n_members}][{n}];"]
    for m, member in enumerate(recipe.members):
        own = indented(_tree(member, dialect, f"said[{m}]"))
        lines += [f"{{  {dialect.remark(member.title)}", *own, "}"]
    each_member, each = f"for (int m = 0; m < {n_members}; m++)", f"for (int k = 0; k < {n}; k++)"
    if recipe.labels:
        return [
            *lines,
            f"double t[{n}] = {{0.0}};",
            f"{each_member} {{",
            "    double mean = 0.0;",
            f"    {each} mean += said[m][k] = log({dialect.mixed_text(recipe, 'said[m][k]')});",
            f"    {each} t[k] += weights[m] * (said[m][k] - mean / {n});",
            "}",
            *_softmax(n, "out"),
        ]
    lines += [
        f"{each} out[k] = 0.0;",
        f"{each_member} {each} out[k] += weights[m] * said[m][k];",
    ]
    if recipe.leader.link == "log":  # counts: the logarithms are added up
        lines += [
            "out[0] = 0.0;",
            f"{each_member} out[0] += weights[m] * log(fmax(said[m][0], 1e-300));",
            "out[0] = exp(out[0]);",
        ]
    if recipe.leader.power is not None:
        lines += [
            "out[1] = out[2] = out[0];",
            f"{each_member} for (int k = 1; k < 3; k++)",
            "    out[k] += fabs(weights[m]) * (said[m][k] - said[m][0]);",
        ]
        if recipe.leader.link == "log":
            lines.append(f"out[1] = {dialect.positive('out[1]')};")
    if recipe.quantiles:
        lines.append(f"for (int k = 1; k < {n}; k++) out[k] = fmax(out[k], out[k - 1]);")
    return lines


def _n_out(recipe: AnyRecipe) -> int:
    has_ends = recipe.members[0].power is not None
    return len(recipe.labels) or len(recipe.quantiles) or (3 if has_ends else 1)


def _guide(recipe: AnyRecipe, numbers: list[Feature], texts: list[Feature]) -> list[str]:
    """Return a comment that describes inputs and outputs."""
    lines = []
    for i, feature in enumerate(numbers):
        missing = "NAN if missing" if _is_free(feature) else f"NAN for {feature.frozen!r}"
        lines.append(f"numbers[{i}]: {feature.text}, {missing}")
    lines += [f"texts[{i}]: {feature.text}, NULL if missing" for i, feature in enumerate(texts)]
    outs = [f"probability of {label!r}" for label in recipe.labels]
    outs = outs or [f"quantile {one:g}" for one in recipe.quantiles]
    outs = outs or ["the predicted number", "lower end", "upper end"][: _n_out(recipe)]
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
            return place if _is_free(feature) else f"{missing} ? {feature.frozen!r} : {place}"
        tests = [f"{place} == {_number(level)}" for level in feature.levels]
    places = "".join(f"{test} ? {i} : " for i, test in enumerate(tests))
    return f"{missing} ? NAN : {places}{OTHER_LEVEL}"


def _is_free(feature: Feature) -> bool:
    """Return whether NAN is a missing value, not that of a recent target."""
    return feature.frozen is None or math.isnan(feature.frozen)


def _number(level: Any) -> str:
    number = float(level)
    return repr(number) if math.isfinite(number) else f"{'-' * (number < 0)}INFINITY"


def _quoted(text: str) -> str:
    """Return a text as a UTF-8 literal."""
    if "\0" in text:
        raise ValueError(f"the level {text!r} holds a NUL, which ends a text in C")
    plain = "".join(
        chr(byte) if 32 <= byte < 127 and byte not in b'"\\?' else f"\\{byte:03o}"
        for byte in text.encode("utf-8", "surrogatepass")
    )
    return f'"{plain}"'


def _result(recipe: Recipe, dialect: C, out: str) -> list[str]:
    """Return the statements from the sums to a tree's prediction."""
    n = recipe.n_outputs
    if recipe.link == "certain":
        return ["(void)t;", f"{out}[0] = 1.0;"]
    if recipe.link == "logistic":
        p = dialect.logistic("t[0]")
        p = f"floor + rest * ({p})" if recipe.has_floor else p
        return [f"{out}[1] = {p};", f"{out}[0] = 1.0 - {out}[1];"]
    if recipe.link == "softmax":
        return _softmax(n, out)
    if recipe.link == "quantiles":
        offsets = ", ".join(map(dialect.number, recipe.offsets))
        return [
            f"const double offsets[] = {{{offsets}}};",
            f"for (int k = 0; k < {n}; k++) {{  // in order",
            "    const double own = t[k] + offsets[k];",
            "    int i = k;",
            f"    for (; i > 0 && {out}[i - 1] > own; i--) {out}[i] = {out}[i - 1];",
            f"    {out}[i] = own;",
            "}",
            f"for (int k = 0; k < {n}; k++) {out}[k] = {dialect.in_units(recipe, f'{out}[k]')};",
        ]
    return [f"{out}[{k}] = {text};" for k, text in enumerate(dialect.number_texts(recipe))]


def _softmax(n: int, out: str) -> list[str]:
    return [
        "double top = t[0], sum = 0.0;",
        f"for (int k = 1; k < {n}; k++) top = fmax(top, t[k]);",
        f"for (int k = 0; k < {n}; k++) sum += {out}[k] = exp(t[k] - top);",
        f"for (int k = 0; k < {n}; k++) {out}[k] /= sum;",
    ]
