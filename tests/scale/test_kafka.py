"""A model over Kafka topics, and that no kill changes what it has learnt."""

import json
import random
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import driftree
from driftree import DynamicModelTreeClassifier, cli
from driftree.scale.joined import HELP, JoinedStream, serve_metrics
from driftree.scale.kafka import KafkaStream
from topics import QUIET, REAL, REAL_CONFIG, Ended, cluster, end_at, received, send

N_ROWS = 600
N_USED = N_ROWS - 3  # two rows do not fit, and one label
TOPICS = {"predictions": "out", "dead": "dead", "events": "events"}
DRIVER = Path(__file__).parent.parent / "support" / "topics.py"


def rows_and_labels(seed=1):
    """Rows, labels that come 20 rows later, and here and there something that does not fit."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(N_ROWS, 2))
    y = (X[:, 0] > 0) ^ (X[:, 1] > 0)
    rows = [{"id": i, "a": a, "b": b, "c": "uv"[i % 2]} for i, (a, b) in enumerate(X.tolist())]
    labels = [{"id": i, "label": "yes" if label else "no"} for i, label in enumerate(y)]
    return rows, labels


@pytest.fixture(scope="module")
def brokers():
    """Rows in two partitions, and labels in a topic of their own."""
    rows, labels = rows_and_labels()
    rows[50], rows[80] = b"{torn", {"id": 80, "a": "text", "b": 1}
    labels[70] = {"label": "yes"}
    with cluster() as address:
        send(address, "rows", rows, partitions=2)
        send(address, "labels", labels, times=[i + 20.5 for i in range(N_ROWS)])
        yield address


def make_stream(folder, brokers, **parameters):
    joined = JoinedStream(DynamicModelTreeClassifier(epsilon=0.05), window=100.0)
    topics = {"rows": "rows", "labels": "labels", "every": 150, "config": QUIET} | parameters
    return KafkaStream(joined, folder, brokers=brokers, **topics)


def run(folder, brokers, **parameters):
    with make_stream(folder, brokers, **parameters) as stream:
        stream.run(until_end=True)
        stream.model.save(Path(folder) / "model.dmt")
        stream.figures = stream.metrics()
        return stream


@pytest.fixture(scope="module")
def whole(brokers, tmp_path_factory):
    """An uninterrupted run."""
    folder = tmp_path_factory.mktemp("whole")
    return run(folder, brokers, **TOPICS), folder


def model_in(folder):
    return (Path(folder) / "model.dmt").read_bytes()


# ---------------------------------------------------------------------- through the cluster
def test_rows_are_predicted_and_learnt_when_their_labels_come(brokers, whole):
    stream, folder = whole
    predictions = {one["id"]: one["prediction"] for one in received(brokers, "out")}
    assert predictions.keys() == {*range(N_ROWS)} - {50, 80}
    labels = {one["id"]: one["label"] for one in rows_and_labels()[1]}
    judged = [i for i, said in predictions.items() if said is not None and i != 70]
    share = sum(predictions[i] == labels[i] for i in judged) / len(judged)
    assert stream.joined.quality.mean == pytest.approx(share)
    assert (
        stream.joined.counts["learnt"] == driftree.load(folder / "model.dmt").n_rows_seen_ == N_USED
    )


def test_figures_of_lag_and_quality(whole):
    stream, _ = whole
    assert stream.figures.keys() == HELP.keys()
    assert stream.figures["driftree_stream_lag"] == 0
    assert stream.figures["driftree_stream_messages_total"] == 2 * N_ROWS
    assert stream.figures["driftree_stream_model_version"] == N_USED
    port = serve_metrics(lambda: stream.figures, 0)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as response:
        text = response.read().decode()
    assert f"\ndriftree_stream_learnt_total {N_USED}\n" in text
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/")


def test_what_cannot_be_used_is_sent_on_with_a_reason(brokers, whole):
    letters = received(brokers, "dead")
    found = {(one["topic"], one["partition"], one["offset"]): one for one in letters}
    assert "not valid JSON" in found["rows", 0, 25]["reason"]
    assert found["rows", 0, 25]["value"] == "{torn"
    assert "column 'a' is numeric, but row 0 holds 'text'" in found["rows", 0, 40]["reason"]
    assert found["labels", 0, 70]["reason"] == "a label needs 'id', which is missing"
    for i in (50, 80):
        reason = f"no row with the id {i} arrived within 100 seconds"
        assert found["labels", 0, i]["reason"] == reason
    assert len(letters) == 5


def test_changes_of_the_tree_are_told(brokers, whole):
    events = whole[0].model.events_
    assert [one["why"] for one in received(brokers, "events")] == list(map(str, events)) != []


def test_the_order_does_not_depend_on_how_messages_are_fetched(
    brokers, whole, tmp_path, monkeypatch
):
    monkeypatch.setattr("driftree.scale.kafka.FETCHED", 50)
    monkeypatch.setattr("driftree.scale.kafka.MOST_AHEAD", 100)
    run(tmp_path, brokers, every=10_000)
    assert model_in(tmp_path) == model_in(whole[1])


def end():
    raise Ended


def test_ended_anywhere_it_continues_to_the_same_model(brokers, whole, tmp_path):
    draw, n_ended, stream = random.Random(1), 0, None
    while stream is None:
        with pytest.MonkeyPatch.context() as patch:
            if n_ended < 5:
                end_at(patch.setattr, draw.randrange(1, 2500), end)
            try:
                stream = run(tmp_path, brokers, predictions="again")
            except Ended:
                n_ended += 1
    assert n_ended == 5
    assert model_in(tmp_path) == model_in(whole[1])
    assert stream.joined.counts == whole[0].joined.counts
    once = {json.dumps(one) for one in received(brokers, "out")}
    again = [json.dumps(one) for one in received(brokers, "again")]
    assert set(again) == once
    assert len(again) > len(once)


@pytest.mark.slow
def test_killed_anywhere_it_continues_to_the_same_model(brokers, tmp_path):
    options = ["--brokers", brokers, "--in", "rows", "--labels", "labels", "--window", "100"]
    kill_often(tmp_path, [*options, "--config", "log_level=0"], n_chains=4)


@pytest.mark.slow
@pytest.mark.skipif(REAL is None, reason="DRIFTREE_KAFKA names no broker, see docs/kafka.md")
def test_killed_anywhere_it_continues_to_the_same_model_on_a_real_broker(tmp_path):
    topic = f"rows-{time.time_ns()}"
    rows, labels = rows_and_labels()
    both = [*rows[:20], *(one for pair in zip(rows[20:], labels, strict=False) for one in pair)]
    send(REAL, topic, [*both, *labels[-20:]], config=REAL_CONFIG)
    options = ["--brokers", REAL, "--in", topic, "--window", "1000"]
    for name, value in REAL_CONFIG.items():
        options += ["--config", f"{name}={value}"]
    kill_often(tmp_path, [*options, "--out", f"{topic}-out"], n_chains=2)
    found = [json.dumps(one) for one in received(REAL, f"{topic}-out", REAL_CONFIG)]
    assert len(found) > 3 * len(set(found)) == 3 * N_ROWS  # one run, and two that were killed


def kill_often(folder, options, n_chains):
    """Compare runs that are killed again and again with one that is not."""
    options += ["--every", "100", "--until-end"]

    def start(folder, most, seed):
        command = [sys.executable, DRIVER, str(most), str(seed), "stream", folder, *options]
        return subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)

    done = start(folder / "whole", 0, 0)
    assert done.returncode == 0, done.stderr
    n_killed = 0
    for chain in range(n_chains):
        own, seed, code = folder / str(chain), 0, None
        while code != 0:
            seed += 1
            done = start(own, 1500 if seed < 7 else 0, f"{chain} {seed}")
            code = done.returncode
            assert code in (0, -signal.SIGKILL), done.stderr
            n_killed += code != 0
        assert model_in(own) == model_in(folder / "whole")
    assert n_killed > 3 * n_chains


# ---------------------------------------------------------------------- starting again
def test_another_topic_or_lost_messages_are_refused(brokers, whole, tmp_path):
    run(tmp_path, brokers)
    with pytest.raises(ValueError, match=r"other topics or partitions: \('labels', 0\)"):
        make_stream(tmp_path, brokers, labels=None)
    with cluster() as other:
        send(other, "rows", [{"x": 1}] * 7)
        send(other, "labels", [{"x": 1}])
        with pytest.raises(ValueError, match=r"at offset 300 of partition 0 .* now has 0 to 7"):
            make_stream(tmp_path, other)


def test_folders_topics_and_clusters_that_will_not_do(brokers, tmp_path, monkeypatch):
    with driftree.Checkpointer(tmp_path / "other") as checkpointer:
        checkpointer.commit(DynamicModelTreeClassifier(), 0)
    with pytest.raises(ValueError, match="not those of a stream"):
        make_stream(tmp_path / "other", brokers)
    with pytest.raises(ValueError, match="topic 'labels' is an input, so"):
        make_stream(tmp_path, brokers, predictions="labels")
    monkeypatch.setattr("driftree.scale.kafka.ANSWER_SECONDS", 0.3)
    with pytest.raises(OSError, match=r"the cluster at 127.0.0.1:1 does not answer"):
        make_stream(tmp_path, "127.0.0.1:1")


def test_a_stream_goes_on_until_it_is_stopped_and_then_where_it_was(tmp_path, monkeypatch):
    monkeypatch.setattr("driftree.scale.kafka.COMMIT_SECONDS", 0.0)
    rows = [{"x": i % 7, "label": i % 2} for i in range(40)]

    def run_until(stream, n):
        running = threading.Thread(target=stream.run)
        running.start()
        while max(stream._checkpointer.positions, default=0) < n:
            time.sleep(0.01)
        stream.stop()
        running.join()

    with cluster() as address:
        send(address, "live", rows[:20])
        topics = {"rows": "live", "labels": "live", "every": 10_000}
        for n in (20, 40):
            with make_stream(tmp_path, address, **topics) as stream:
                run_until(stream, n)
                assert stream.done == stream.joined.counts["learnt"] == n
            send(address, "live", rows[20:])


def test_without_the_package_the_error_names_the_extra(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(ImportError, match="pip install confluent-kafka"):
        make_stream(tmp_path, "nowhere:9092")


# ---------------------------------------------------------------------- the command
def command(*arguments):
    return CliRunner(env={"COLUMNS": "120"}).invoke(cli.app, ["stream", *map(str, arguments)])


def test_the_command_learns_labels_in_the_rows_topic(tmp_path):
    rows, labels = rows_and_labels()
    (tmp_path / "schema.json").write_text('{"a": "number", "b": "number", "c": "text"}')
    with cluster() as address:
        send(address, "both", [part for pair in zip(rows, labels, strict=True) for part in pair])
        options = ["--brokers", address, "--in", "both", "--out", "said", "--until-end"]
        options += ["--config", "log_level=0", "--schema", tmp_path / "schema.json"]
        done = command(tmp_path / "folder", *options)
        assert done.exit_code == 0, done.output
        assert "1,200 messages: 600 rows predicted, 600 learnt, 0 dead letters" in done.stderr
        assert len(received(address, "said")) == N_ROWS
    assert driftree.load(tmp_path / "folder" / "model.dmt").n_rows_seen_ == N_ROWS


def test_mistakes_are_told_in_one_line(tmp_path):
    options = [tmp_path, "--brokers", "-", "--in", "rows"]
    assert "--config takes name=value, got 'x'" in command(*options, "--config", "x").output
    (tmp_path / "schema.json").write_text("[]")
    assert "must be a JSON object" in command(*options, "--schema", tmp_path / "schema.json").output
