"""Queries of Spark's on two local cores, as a driver of their own that may be killed.

`python sparking.py QUERY FOLDER` runs a query over all files in FOLDER/rows until they are done,
or until it kills itself and its Java when FOLDER/kill says at how many batches.
"""

import json
import os
import signal
import sys
import threading
import time
from functools import partial
from pathlib import Path

from driftree import DynamicModelTreeClassifier
from keyed import draw_rows

SCHEMA = "at LONG, key STRING, a DOUBLE, b DOUBLE, kind STRING, label STRING"
COLUMNS = {"target": "label", "order": "at"}
make = partial(DynamicModelTreeClassifier, max_bends=0)


def write_rows(folder, n_files, rows_per_file):
    """Write files of rows, which Spark reads one at a time."""
    rows, labels = draw_rows(n_files * rows_per_file)
    (folder / "rows").mkdir(parents=True)
    for i in range(n_files):
        part = range(i * rows_per_file, (i + 1) * rows_per_file)
        lines = [json.dumps({**rows[at], "at": at, "label": labels[at]}) for at in part]
        path = folder / "rows" / f"{i:03}.json"
        path.write_text("\n".join(lines))
        os.utime(path, (1_700_000_000 + i, 1_700_000_000 + i))  # Spark reads the oldest first
    return rows, labels


def start_spark():
    os.environ.update(PYSPARK_PYTHON=sys.executable, SPARK_LOCAL_IP="127.0.0.1")
    from pyspark.sql import SparkSession

    from driftree.scale.spark import ROCKS_DB, STATE_STORE

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config(STATE_STORE, ROCKS_DB).config("spark.sql.shuffle.partitions", "2")
    spark = builder.config("spark.driver.host", "127.0.0.1").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def read_stream(spark, folder):
    rows = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    return rows.json(str(folder / "rows"))


def learn_by_key(spark, folder):
    from driftree.scale import spark as ours

    answers = ours.learn_by_key(read_stream(spark, folder), make, key="key", **COLUMNS)
    to = answers.writeStream.option("checkpointLocation", str(folder / "checkpoint"))
    return to.trigger(availableNow=True).format("parquet").start(str(folder / "answers"))


def learn_one_model(spark, folder):
    from driftree.scale.spark import BatchLearner

    learner = BatchLearner(make, folder / "model", **COLUMNS)
    to = read_stream(spark, folder).writeStream.foreachBatch(learner)
    to = to.option("checkpointLocation", str(folder / "checkpoint"))
    return to.trigger(availableNow=True).start()


def kill_when_due(folder):
    """Kill this process group when as many batches were begun as the plan says."""
    plan = folder / "kill"
    if not plan.exists():
        return
    n_batches = int(plan.read_text())
    plan.unlink()

    def watch():
        offsets = folder / "checkpoint" / "offsets"
        while not offsets.exists() or len(list(offsets.glob("[0-9]*"))) < n_batches:
            time.sleep(0.01)
        time.sleep(0.05)
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()


def main(query, folder):
    kill_when_due(folder)
    running = {"keys": learn_by_key, "one": learn_one_model}[query](start_spark(), folder)
    running.awaitTermination()


if __name__ == "__main__":
    os.setpgrp()
    main(sys.argv[1], Path(sys.argv[2]))
