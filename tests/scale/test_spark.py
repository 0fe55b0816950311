"""On Spark: the models of a plain loop, whatever is killed meanwhile."""

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from driftree.learn.storage import models
from key_rows import to_columns
from sparking import make, start_spark, write_rows

pytest.importorskip("pyspark", reason="no PySpark here: pip install 'pyspark>=4'")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java 17"),
    pytest.mark.filterwarnings("ignore"),  # PySpark's own
]
DRIVER = Path(__file__).parents[1] / "support" / "sparking.py"
N_FILES, N_ROWS = 4, 60


@pytest.fixture(scope="module")
def spark():
    session = start_spark()
    yield session
    session.stop()


def run(query, folder, kill_at=None):
    """Run a driver until it ends; return how."""
    if kill_at is not None:
        (folder / "kill").write_text(str(kill_at))
    command = [sys.executable, str(DRIVER), query, str(folder)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=500)


def by_hand(rows, labels):
    """The models of a plain loop, and what they predicted before they learnt."""
    known, answers = {}, []
    for at, (x, y) in enumerate(zip(rows, labels, strict=True)):
        model = known.setdefault(x["key"], make())
        rest = {name: x[name] for name in ("a", "b", "kind")}
        answers.append((at, model.predict_one(rest)))
        model.learn_one(rest, y)
    return known, answers


def test_a_model_per_key_is_exactly_once(tmp_path, spark):
    rows, labels = write_rows(tmp_path, N_FILES, N_ROWS)
    killed = run("keys", tmp_path, kill_at=2)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    done = run("keys", tmp_path)
    assert done.returncode == 0, done.stderr
    from driftree.scale.spark import read_models

    known, answers = by_hand(rows, labels)
    found = spark.read.parquet(str(tmp_path / "answers")).orderBy("at")
    assert [(row["at"], row["prediction"]) for row in found.collect()] == answers
    left = read_models(spark, tmp_path / "checkpoint")
    assert {key: models.to_bytes(model) for key, model in left.items()} == {
        key: models.to_bytes(model) for key, model in known.items()
    }


def test_one_model_is_exactly_once(tmp_path, spark):
    rows, labels = write_rows(tmp_path, N_FILES, N_ROWS)
    killed = run("one", tmp_path, kill_at=3)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    done = run("one", tmp_path)
    assert done.returncode == 0, done.stderr
    from driftree.scale.spark import BatchLearner

    model = make()
    for start in range(0, N_FILES * N_ROWS, N_ROWS):
        part = slice(start, start + N_ROWS)
        model.learn_many(to_columns(rows[part]), labels[part])
    with BatchLearner(make, tmp_path / "model", target="label", order="at") as learner:
        assert models.to_bytes(learner.model) == models.to_bytes(model)


def test_any_data_frame_is_predicted(spark):
    import pandas as pd

    from driftree.scale.spark import predict_udf

    frame = pd.DataFrame({"a": [0.5, -1.0, 2.0, -2.0] * 25, "kind": ["u", None] * 50})
    labels = (frame["a"] > 0).tolist()
    model = make()
    model.learn_many(frame, labels)
    names = ["a", "kind"]
    rows = spark.createDataFrame(
        frame.astype(object).where(frame.notna(), None), "a DOUBLE, kind STRING"
    )
    found = rows.withColumn("answer", predict_udf(model, names)(*names)).collect()
    assert [row["answer"] for row in found] == labels


def test_wrong_columns_are_named(spark):
    from driftree.scale.spark import learn_by_key

    rows = spark.createDataFrame([(1, "k", "yes")], "at LONG, key STRING, label STRING")
    with pytest.raises(ValueError, match="key is 'customer', but the columns are 'at', 'key'"):
        learn_by_key(rows, make, key="customer", target="label", order="at")
