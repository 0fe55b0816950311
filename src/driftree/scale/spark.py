"""Models on Spark: one per key, one for a whole stream, and predictions for any DataFrame.

Every row is learnt exactly once: models by key are part of Spark's state and checkpoints, and a
single model is stored in one file with the number of its last batch.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np

from driftree.evaluate.checkpoints import Checkpointer
from driftree.learn.storage import models
from driftree.learn.storage.atomic import Closing
from driftree.learn.validation import list_names, shown
from driftree.scale.keys import check_made
from driftree.stored import CLASSES

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Sequence

    import pandas as pd
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType

    from driftree.stored import StoredModel

STATE = "model"
STATE_STORE = "spark.sql.streaming.stateStore.providerClass"
ROCKS_DB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
NO_SPARK = "models on Spark need Java 17, PySpark 4 and protobuf: pip install 'pyspark>=4' protobuf"


# ---------------------------------------------------------------------- a model per key
def learn_by_key(
    rows: DataFrame, make: Callable[[], StoredModel], *, key: str, target: str, order: str
) -> DataFrame:
    """Predict and then learn every row of a stream, by a model per key.

    The models are part of Spark's state (`transformWithStateInPandas`) and checkpoints: whatever is
    killed, every row is learnt exactly once. `read_models` reads them.

    Parameters
    ----------
    rows : DataFrame
        A stream. All columns except `key`, `target` and `order` are features.
    make : callable
        Returns a new model of driftree's own.
    key, target : str
        The columns that hold the key and the label, or the number.
    order : str
        A column to sort the rows of a key by within a batch, since batches in Spark have no order:
        a time or a number.

    Returns
    -------
    DataFrame
        For each row its `key`, `order` and `target`, the `prediction` made before it was learnt
        (none for a key's first row), and `n_rows`, how many rows the model had learnt then.

    Examples
    --------
    >>> from driftree import DynamicModelTreeClassifier
    >>> def start(spark, folder):
    ...     schema = "at LONG, machine STRING, heat DOUBLE, failed STRING"
    ...     rows = spark.readStream.schema(schema).json(f"{folder}/rows")
    ...     columns = {"key": "machine", "target": "failed", "order": "at"}
    ...     answers = learn_by_key(rows, DynamicModelTreeClassifier, **columns)
    ...     to = answers.writeStream.option("checkpointLocation", f"{folder}/checkpoint")
    ...     return to.start(f"{folder}/answers", format="parquet")
    """
    needed = {"key": key, "target": target, "order": order}
    _check_columns(rows, needed)
    types = {name: rows.schema[name].dataType for name in needed.values()}
    of_labels = hasattr(check_made(make()), "predict_proba_one")
    if rows.sparkSession.conf.get(STATE_STORE) != ROCKS_DB:
        raise ValueError(
            f"Spark supports such state only in RocksDB: set {STATE_STORE} to {ROCKS_DB}"
        )
    return rows.groupBy(key).transformWithStateInPandas(
        statefulProcessor=_processor(make, key, target, order),
        outputStructType=_answer_schema(types, target, of_labels=of_labels),
        outputMode="Append",
        timeMode="None",
    )


def read_models(spark: SparkSession, checkpoint: str | os.PathLike[str]) -> dict[Any, StoredModel]:
    """Return the models by key that are in a checkpoint of `learn_by_key`.

    Parameters
    ----------
    spark : SparkSession
        The session.
    checkpoint : path
        The `checkpointLocation` of the query.
    """
    found = (
        spark.read.format("statestore")
        .option("path", str(checkpoint))
        .option("stateVarName", STATE)
        .load()
        .selectExpr("key.*", "value.data AS data")
    )
    return {row[0]: models.from_bytes(bytes(row["data"]), CLASSES) for row in found.collect()}


def _processor(make: Callable[[], StoredModel], key: str, target: str, order: str) -> Any:
    """Return the processor that Spark calls with the rows of each key; its class needs PySpark."""
    import pandas as pd
    from pyspark.sql.streaming import StatefulProcessor
    from pyspark.sql.types import BinaryType, StructField, StructType

    class KeyProcessor(StatefulProcessor):
        def init(self, handle: Any) -> None:
            schema = StructType([StructField("data", BinaryType())])
            self.state = handle.getValueState(STATE, schema)

        def handleInputRows(  # noqa: N802 (Spark's name)
            self, key_values: Any, rows: Iterator[pd.DataFrame], _: Any
        ) -> Iterator[pd.DataFrame]:
            known = self.state.get()
            model = make() if known is None else models.from_bytes(bytes(known[0]), CLASSES)
            batch = pd.concat(list(rows)).sort_values(order, kind="stable")
            answers = batch[[key, order, target]].copy()
            answers["prediction"], answers["n_rows"] = _test_then_train(
                model, batch.drop(columns=[key, order, target]), batch[target]
            )
            self.state.update((models.to_bytes(model),))
            yield answers

        def close(self) -> None:
            pass

    return KeyProcessor()


def _test_then_train(model: Any, X: pd.DataFrame, y: pd.Series) -> tuple[list[Any], list[int]]:
    """Predict and learn rows one by one; return the predictions, and the rows learnt before."""
    first = 0 if model._tree is None else model.n_rows_seen_
    predictions = []
    for x, label in zip(_dicts(X), y.tolist(), strict=True):
        predictions.append(None if model._tree is None else model.predict_one(x))
        model.learn_one(x, label)
    return predictions, list(range(first, first + len(y)))


def _dicts(X: pd.DataFrame) -> list[dict[Any, Any]]:
    names, columns = list(X.columns), [X[name].tolist() for name in X.columns]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _answer_schema(types: dict[str, DataType], target: str, *, of_labels: bool) -> Any:
    from pyspark.sql.types import DoubleType, LongType, StructField, StructType

    prediction = types[target] if of_labels else DoubleType()
    fields = [StructField(name, kind) for name, kind in types.items()]
    fields.sort(key=lambda field: field.name == target)  # key, order, target
    return StructType(
        [*fields, StructField("prediction", prediction), StructField("n_rows", LongType())]
    )


def _check_columns(rows: DataFrame, needed: dict[str, str]) -> None:
    for what, name in needed.items():
        if name not in rows.columns:
            raise ValueError(
                f"{what} is {name!r}, but the columns are {list_names(rows.columns)}: name one of "
                "them"
            )


# ---------------------------------------------------------------------- one model
class BatchLearner(Closing):
    """One model that learns a stream, for `foreachBatch`; exactly once.

    After each batch the model and the number of the batch are written as one file
    (`driftree.Checkpointer`). A batch that Spark repeats after a crash is skipped if it was learnt.

    Parameters
    ----------
    make : callable
        Returns a new model of driftree's own; not used if the folder holds one.
    path : path
        A folder on the driver, besides Spark's own checkpoint. Only one process at a time may use
        it.
    target : str
        The column that holds the label, or the number.
    order : str
        A column to sort the rows of a batch by; it is not a feature.

    Attributes
    ----------
    model : DynamicModelTreeClassifier or another learner
        The present model.

    Examples
    --------
    >>> from driftree import DynamicModelTreeClassifier
    >>> def start(rows, folder):
    ...     columns = {"target": "failed", "order": "at"}
    ...     learner = BatchLearner(DynamicModelTreeClassifier, f"{folder}/model", **columns)
    ...     to = rows.writeStream.option("checkpointLocation", f"{folder}/checkpoint")
    ...     return learner, to.foreachBatch(learner).start()
    """

    def __init__(
        self,
        make: Callable[[], StoredModel],
        path: str | os.PathLike[str],
        *,
        target: str,
        order: str,
    ) -> None:
        self.target = target
        self.order = order
        self._checkpointer = Checkpointer(path)
        found = self._checkpointer.resume()
        self.model: Any = check_made(make()) if found is None else found.model
        self._n_batches = 0 if found is None else found.position

    def __call__(self, rows: DataFrame, batch: int) -> None:
        """Learn a batch, unless it was learnt before."""
        if batch < self._n_batches:
            return
        _check_columns(rows, {"target": self.target, "order": self.order})
        frame = rows.toPandas().sort_values(self.order, kind="stable")
        if len(frame):
            self.model.learn_many(
                frame.drop(columns=[self.target, self.order]), frame[self.target].tolist()
            )
        self._checkpointer.commit(self.model, batch + 1)
        self._n_batches = batch + 1

    def close(self) -> None:
        """Release the folder."""
        self._checkpointer.close()


# ---------------------------------------------------------------------- predictions
def predict_udf(model: StoredModel, features: Sequence[str]) -> Callable[..., Any]:
    """Return a pandas UDF that predicts the rows of any DataFrame.

    Parameters
    ----------
    model : DynamicModelTreeClassifier or another learner
        The model, which is sent to the workers once.
    features : sequence of str
        Names of the columns that the UDF is called with, as the model knows them.

    Returns
    -------
    callable
        Takes a column for each feature, and returns a column of labels or numbers.

    Examples
    --------
    >>> def predict(rows, model):
    ...     features = ["heat", "load"]
    ...     return rows.withColumn("answer", predict_udf(model, features)(*features))
    """
    import pandas as pd

    try:
        from pyspark.sql.functions import pandas_udf
    except ImportError:
        raise ImportError(NO_SPARK) from None
    names = list(features)
    data = models.to_bytes(check_made(model))

    def predict(*columns: Any) -> Any:
        frame = pd.DataFrame(dict(zip(names, columns, strict=True)))
        return pd.Series(_loaded(data).predict_many(frame).tolist())

    # Spark reads the types of a UDF from its annotations.
    predict.__annotations__ = {"columns": pd.Series, "return": pd.Series}
    return pandas_udf(predict, returnType=_prediction_type(model))  # type: ignore[no-any-return]


@functools.lru_cache(4)
def _loaded(data: bytes) -> Any:
    """Return a model, loaded once per worker."""
    return models.from_bytes(data, CLASSES)


def _prediction_type(model: Any) -> str:
    """Return Spark's type of a model's predictions."""
    if not hasattr(model, "predict_proba_one"):
        return "double"
    kinds = {type(label) for label in np.asarray(model.classes_).tolist()}
    types = {str: "string", bool: "boolean", int: "long", float: "double"}
    if len(kinds) != 1 or not kinds <= types.keys():
        raise TypeError(
            f"a column in Spark has one type, but the labels are {shown(list(model.classes_))}: "
            "make them all text, numbers or booleans"
        )
    return types[kinds.pop()]
