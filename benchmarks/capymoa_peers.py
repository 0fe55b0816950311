"""CapyMOA, where it is installed: its classifiers, and its ensembles as River's are called."""

from __future__ import annotations

import math
import os
from importlib import import_module
from typing import Any

import numpy as np
import pandas as pd

HELP = "CapyMOA is left out: pip install capymoa, and a Java runtime of version 17 or newer"
# Java compiles while it runs. -Xbatch makes a learner wait for it, or others would pay for it.
JVM_ARGUMENTS = "-Xmx2g -Xss10M -Xbatch -XX:+UseSerialGC"


def load_classifiers() -> Any:
    """Start Java, return CapyMOA's classifiers; raise ImportError with what to do if it cannot."""
    os.environ.setdefault("CAPYMOA_JVM_ARGS", JVM_ARGUMENTS)
    try:
        return import_module("capymoa.classifier")
    except (ImportError, RuntimeError, OSError, ValueError) as error:  # the others: without Java
        raise ImportError(f"{HELP} ({error})") from error


class Ensemble:
    """Ten members of CapyMOA's, seed 1, other options at their defaults; text is nominal.

    MOA has to be told all levels and labels before the first row.
    """

    def __init__(self, name: str, X: pd.DataFrame, y: list[str]) -> None:
        build = getattr(load_classifiers(), name)
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
        self.model = build(self.schema, random_seed=1, ensemble_size=10)
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
