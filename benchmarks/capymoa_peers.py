"""CapyMOA, where it is installed: its learners, and some of them as River's are called."""

from __future__ import annotations

import math
import os
from importlib import import_module
from typing import Any

import numpy as np
import pandas as pd

from driftree.evaluate.learners import PreparedRows

HELP = "CapyMOA is left out: pip install capymoa, and a Java runtime of version 17 or newer"
# Java compiles while it runs. -Xbatch makes a learner wait for it, or others would pay for it.
JVM_ARGUMENTS = "-Xmx2g -Xss10M -Xbatch -XX:+UseSerialGC"


def load(kind: str) -> Any:
    """Start Java, return CapyMOA's learners of a kind, "classifier" or "regressor".

    Raise ImportError with what to do if it cannot.
    """
    os.environ.setdefault("CAPYMOA_JVM_ARGS", JVM_ARGUMENTS)
    try:
        return import_module(f"capymoa.{kind}")
    except (ImportError, RuntimeError, OSError, ValueError) as error:  # the others: without Java
        raise ImportError(f"{HELP} ({error})") from error


class Ensemble:
    """A classifier of CapyMOA's, seed 1, text is nominal; options at their defaults unless given.

    MOA has to be told all levels and labels before the first row.
    """

    def __init__(self, name: str, X: pd.DataFrame, y: list[str], **options: Any) -> None:
        build = getattr(load("classifier"), name)
        from capymoa.core import Instance, LabeledInstance
        from capymoa.stream import Schema

        self.columns = list(X)
        self.labels = sorted(set(y))
        texts = [column for column in X if not pd.api.types.is_numeric_dtype(X[column])]
        levels = {column: sorted(set(X[column].dropna())) for column in texts}
        self.codes = {
            column: {level: i for i, level in enumerate(found)} for column, found in levels.items()
        }
        names = {column: list(map(str, found)) for column, found in levels.items()}
        self.schema = Schema.from_custom(
            [*self.columns, "its label"], "its label", {**names, "its label": self.labels}
        )
        self.model = build(self.schema, random_seed=1, **options)
        self.wrap, self.wrap_labelled = Instance.from_array, LabeledInstance.from_array

    def predict_proba_one(self, x: dict[str, Any]) -> dict[str, float]:
        """Return the share of the votes of each label; nothing if there are none."""
        votes = self.model.predict_proba(self.wrap(self.schema, self.encode(x)))
        return {} if votes is None else dict(zip(self.labels, votes.tolist(), strict=True))

    def learn_one(self, x: dict[str, Any], y: str) -> None:
        """Learn a row."""
        label = self.labels.index(y)
        self.model.train(self.wrap_labelled(self.schema, self.encode(x), label))

    def encode(self, x: dict[str, Any]) -> np.ndarray:
        """Return numbers as they are, levels as theirs, and NaN where a value is missing."""
        values = (
            self.codes[column].get(x.get(column), math.nan)
            if column in self.codes
            else x.get(column, math.nan)
            for column in self.columns
        )
        return np.array([math.nan if value is None else value for value in values], dtype=float)


class Regressor:
    """A regressor of CapyMOA's, seed 1, other options at their defaults if they are not given.

    Its rows are prepared as those of River's learners; MOA has to be told all names before the
    first of them.
    """

    def __init__(self, name: str, X: list[dict[Any, Any]], **options: Any) -> None:
        build = getattr(load("regressor"), name)
        from capymoa.core import Instance, RegressionInstance
        from capymoa.stream import Schema

        self.rows = PreparedRows()
        whole = PreparedRows()
        for x in X:
            whole.learn_one(x)
        self.columns = list(whole.transform_one({}))
        names = [f"x{i}" for i in range(len(self.columns))]
        self.schema = Schema.from_custom([*names, "its target"], "its target")
        self.model = build(self.schema, random_seed=1, **options)
        self.wrap, self.wrap_labelled = Instance.from_array, RegressionInstance.from_array

    def predict_one(self, x: dict[Any, Any]) -> float:
        """Return the prediction; 0 if there is none."""
        number = self.model.predict(self.wrap(self.schema, self.encode(x)))
        return 0.0 if number is None else float(number)

    def learn_one(self, x: dict[Any, Any], y: float) -> None:
        """Learn a row."""
        self.rows.learn_one(x)
        self.model.train(self.wrap_labelled(self.schema, self.encode(x), float(y)))

    def encode(self, x: dict[Any, Any]) -> np.ndarray:
        """Return the row as an array; names that have not come yet are 0."""
        row = self.rows.transform_one(x)
        return np.array([row.get(column, 0.0) for column in self.columns], dtype=float)

    def count_leaves(self) -> int | None:
        """Return the leaves that MOA says it has, of a forest those of all trees; None if none."""
        said = self.model.moa_learner.getModelMeasurements()
        sizes = {str(one.getName()): float(one.getValue()) for one in said or ()}
        found = [size for name, size in sizes.items() if "leaves" in name.lower()]
        return int(found[0]) if found else None
