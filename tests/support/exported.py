"""Models to export, and what has been exported, run."""

import ctypes
import functools
import math
import shutil
import sqlite3
import subprocess

import numpy as np
import onnxruntime

from driftree import (
    DynamicModelForestClassifier,
    DynamicModelForestRegressor,
    DynamicModelTreeClassifier,
    DynamicModelTreeRegressor,
    FIMTDDClassifier,
    FIMTDDRegressor,
    to_code,
    to_onnx,
)
from driftree.export.recipe import recipe_of
from quick import of_setting

N_ROWS = 600
COMPILER = shutil.which("cc") or shutil.which("gcc")
LABELS = {1: ["yes"], 2: [True, False], 3: ["a'b", 'c"d', "ö"], 5: [3, 1, 4, 15, 9]}
NUMBERS = {
    "gaussian": {},
    "student": {},
    "poisson": {},
    "quantile": {"quantiles": (0.05, 0.3, 0.5, 0.9)},
}

QUICK = {name: one for name, one in of_setting("measured").items() if name != "setting"}
MAKERS = {
    **{
        f"measured {n}": functools.partial(DynamicModelTreeClassifier, **of_setting("measured"))
        for n in LABELS
    },
    **{
        f"paper {n}": functools.partial(DynamicModelTreeClassifier, **of_setting("paper"))
        for n in (2, 3)
    },
    **{
        f"FIMT-DD {n}": functools.partial(FIMTDDClassifier, grace_period=50, delta=0.5)
        for n in (1, 2, 3)
    },
    **{
        loss: functools.partial(DynamicModelTreeRegressor, loss, **of_setting("measured"), **more)
        for loss, more in NUMBERS.items()
    },
    "paper numbers": functools.partial(DynamicModelTreeRegressor, **of_setting("paper")),
    "no target": functools.partial(
        DynamicModelTreeRegressor, **of_setting("measured"), follow_target=False
    ),
    "FIMT-DD numbers": functools.partial(FIMTDDRegressor, grace_period=50, delta=0.5),
    **{
        f"forest {n}": functools.partial(DynamicModelForestClassifier, 3, **QUICK)
        for n in (1, 2, 3)
    },
    **{
        f"forest {loss}": functools.partial(
            DynamicModelForestRegressor, 3, loss=loss, **QUICK, **NUMBERS[loss]
        )
        for loss in ("gaussian", "poisson", "quantile")
    },
}
WITH_INTERVALS = (
    "gaussian",
    "student",
    "poisson",
    "paper numbers",
    "no target",
    "forest gaussian",
    "forest poisson",
)


def make_columns(rng, n_rows):
    """Some of numbers near 0 and far from it, 0 and 1 only, the same; text, booleans, codes."""
    n_levels = rng.choice([3, 40])
    columns = {
        "near": rng.normal(size=n_rows).round(2),
        "far off": 1e6 + 3 * rng.exponential(size=n_rows),
        "is it": (rng.random(n_rows) < 0.3).astype(float),
        "constant": np.full(n_rows, 7.5),
        'car "x"': rng.choice([f"l'{i}" for i in range(n_levels)], n_rows),
        "owner": rng.random(n_rows) < 0.5,
        "code": rng.integers(0, 4, n_rows) * 10,
    }
    hidden = rng.random((n_rows, len(columns))) < rng.choice([0.0, 0.2])
    columns = {
        name: [None if gone else value for value, gone in zip(own.tolist(), gap, strict=True)]
        for (name, own), gap in zip(columns.items(), hidden.T, strict=True)
    }
    kept = set(rng.permutation([*columns])[: rng.integers(1, len(columns) + 1)])
    return {name: own for name, own in columns.items() if name in kept}


def make_score(rng, columns):
    """What needs splits by levels, and bends, and changes on the way."""
    n_rows = len(next(iter(columns.values())))
    score, sign = rng.normal(size=n_rows) / 3, np.ones(n_rows)
    for name, own in columns.items():
        if name in ("near", "far off"):
            values = np.array([0.0 if value is None else value for value in own])
            known = values - np.median(values)
            score += np.where(np.arange(n_rows) < n_rows // 2, np.abs(known), known)
        elif name != "constant":
            sign *= [-1 if value in (True, 20, "l'1") else 1 for value in own]
    return (1 + score) * sign


def make_target(rng, kind, columns):
    score = make_score(rng, columns)
    n_labels = kind.split()[-1]
    if not n_labels.isdigit():
        return np.exp(np.clip(score, -3, 3)).round(3) * (1 if "poisson" in kind else 1000)
    labels = LABELS[int(n_labels)]
    places = np.digitize(score, np.quantile(score, np.arange(1, len(labels)) / len(labels)))
    is_noise = rng.random(len(score)) < rng.choice([0.0, 0.3])
    places = np.where(is_noise, rng.integers(0, len(labels), len(score)), places)
    return [labels[place] for place in places]


def make_model(kind, seed):
    """A model of this kind that has learnt a stream, and rows to predict, some of them strange."""
    rng = np.random.default_rng(seed)
    columns = make_columns(rng, N_ROWS)
    y = make_target(rng, kind, columns)
    model = MAKERS[kind](categorical=["code"] if "code" in columns else None)
    if hasattr(model, "epsilon"):
        model.epsilon = rng.choice([0.05, 1.0])  # the rash ones split early
    for start in range(0, N_ROWS, 20):
        some = slice(start, start + 20)
        model.learn_many({name: own[some] for name, own in columns.items()}, y[some])
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return model, [*rows[-60:], *strange_rows(rows[0])]


def strange_rows(row):
    """Nothing known, new levels, far out, and other types of the same value."""
    far = {"near": 1e300, "far off": -1e300, "is it": 50.0, "constant": -8.0}
    changes = [
        dict.fromkeys(row),
        {'car "x"': "new", "code": 77},
        far,
        {name: -value for name, value in far.items()},
        {"owner": 1, "code": 20.0, "near": math.nan},
    ]
    return [{name: change.get(name, value) for name, value in row.items()} for change in changes]


def predict(model, rows):
    """What the model itself says, [rows, outputs]."""
    if hasattr(model, "predict_proba_one"):
        return np.array([[*model.predict_proba_one(row).values()] for row in rows])
    if getattr(model, "loss", None) == "quantile":
        columns = {name: [row[name] for row in rows] for name in rows[0]}
        return model.predict_quantiles(columns)
    return np.array([[model.predict_one(row)] for row in rows])


def predict_interval(model, rows, level):
    """Numbers and the ends of their intervals."""
    return np.array([[model.predict_one(x), *model.predict_interval_one(x, level)] for x in rows])


# ---------------------------------------------------------------------- what was exported
def run_python(model, rows, **options):
    space = {}
    exec(to_code(model, "python", **options), space)
    found = [space["predict"](row) for row in rows]
    if isinstance(found[0], dict):
        assert list(found[0]) == model.classes_.tolist()
        return np.array([[*one.values()] for one in found])
    return np.array(found).reshape(len(rows), -1)


def is_gone(value):
    return value is None or (isinstance(value, float) and math.isnan(value))


def run_c(model, rows, folder, **options):
    source, library = folder / "predict.c", folder / "predict.so"
    source.write_text(to_code(model, "c", **options), encoding="utf-8")
    strict = ["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror"]
    shared = ["-ffp-contract=off", "-shared", "-fPIC", "-o", library, source, "-lm"]
    subprocess.run([COMPILER, *strict, *shared], check=True)
    function = ctypes.CDLL(str(library)).predict
    features = recipe_of(model).features
    found = []
    for row in rows:
        cells = [(own, row.get(own.name)) for own in features]
        numbers = [
            math.nan if is_gone(cell) else float(cell) for own, cell in cells if not own.has_text
        ]
        texts = [None if is_gone(cell) else cell.encode() for own, cell in cells if own.has_text]
        out = (ctypes.c_double * 10)()
        function(
            *([(ctypes.c_double * len(numbers))(*numbers)] if numbers else []),
            *([(ctypes.c_char_p * len(texts))(*texts)] if texts else []),
            out,
        )
        found.append(list(out))
    return np.array(found)


def run_sql(model, rows, **options):
    database = sqlite3.connect(":memory:")
    names = ", ".join('"{}"'.format(name.replace('"', '""')) for name in rows[0])
    database.execute(f"CREATE TABLE data ({names})")
    places = ", ".join("?" * len(rows[0]))
    cells = [[None if is_gone(cell) else cell for cell in row.values()] for row in rows]
    database.executemany(f"INSERT INTO data VALUES ({places})", cells)
    answer = database.execute(to_code(model, "sql", **options))
    shown = [name for name, *_ in answer.description]
    first = next(
        i
        for i, name in enumerate(shown)
        if name.split()[0] in ("probability", "quantile", "prediction")
    )
    return np.array([row[first:] for row in answer.fetchall()], dtype=float)


def run_onnx(model, rows, dtype="float64", *, interval=None, **levels):
    quiet = onnxruntime.SessionOptions()
    quiet.log_severity_level = 3  # it warns that inputs with a default are no constants
    graph = to_onnx(model, dtype=dtype, interval=interval).SerializeToString()
    session = onnxruntime.InferenceSession(graph, quiet)
    given = {}
    features = recipe_of(model).features
    table = [own.name for own in features if not own.has_text and own.frozen is None]
    if table:
        cells = [[row.get(name) for name in table] for row in rows]
        given["X"] = np.array(
            [[math.nan if is_gone(cell) else float(cell) for cell in row] for row in cells]
        ).astype(dtype)
    for own in features:
        if own.has_text:
            cells = [row.get(own.name) for row in rows]
            given[own.text] = np.array(["" if is_gone(c) else c for c in cells], object)[:, None]
    answers = session.run(None, given | levels)
    return dict(zip((one.name for one in session.get_outputs()), answers, strict=True))
