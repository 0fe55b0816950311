"""Export: a fitted model for use without driftree, as ONNX, or as code in Python, C or SQL.

>>> from driftree import DynamicModelTreeClassifier
>>> from driftree.export import to_code
>>> model = DynamicModelTreeClassifier()
>>> for age in range(20, 60):
...     model.learn_one({"age": age}, "old" if age > 40 else "young")
>>> print(to_code(model, "python").splitlines()[5])
def predict(row):
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from driftree.export.c import c_code
from driftree.export.dialect import python_code
from driftree.export.onnx import to_onnx as to_onnx
from driftree.export.recipe import recipe_of
from driftree.export.sql import sql_code

if TYPE_CHECKING:
    from driftree.learn.estimator import StreamEstimator

__all__ = ["to_code", "to_onnx"]

LANGUAGES = {
    "python": (python_code, "predict"),
    "c": (c_code, "predict"),
    "sql": (sql_code, "data"),
}


def to_code(
    model: StreamEstimator,
    language: str,
    *,
    name: str | None = None,
    interval: float | None = None,
) -> str:
    """Return a fitted model as the source code of a function that needs no library.

    It predicts what the model predicts now, to about 15 digits, and does not learn. In Python the
    function takes a dict and returns a dict of labels to probabilities, or a number. In C it takes
    arrays, which comments describe, and writes probabilities or numbers to a third. In SQL it is a
    query that adds columns with the predictions to those of a table.

    Parameters
    ----------
    model : estimator of this library
        A fitted model. Models of sparse rows cannot be exported.
    language : {"python", "c", "sql"}
        C is C99, and SQL is what SQLite, DuckDB and PostgreSQL have in common.
    name : str, optional
        Name of the function, "predict" by default; for SQL that of the table, "data" by default.
    interval : float, optional
        For a regressor: a level from 0.5 to 0.99. Then the function also returns the ends of the
        interval, as `predict_interval` computes it now.

    Returns
    -------
    str

    Examples
    --------
    >>> from driftree import DynamicModelTreeClassifier, to_code
    >>> model = DynamicModelTreeClassifier()
    >>> for age in range(20, 60):
    ...     model.learn_one({"age": age}, "old" if age > 40 else "young")
    >>> exec(to_code(model, "python"))
    >>> predict({"age": 50})["old"] == model.predict_proba_one({"age": 50})["old"]
    True
    """
    if language not in LANGUAGES:
        raise ValueError(f"language must be one of {', '.join(LANGUAGES)}, got {language!r}")
    write, usual_name = LANGUAGES[language]
    return write(recipe_of(model, interval), usual_name if name is None else name)
