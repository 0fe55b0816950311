"""The application: every endpoint, every refusal; whatever a client sends, no 5xx."""

import asyncio
import datetime as dt
import html
import json
import os
import re
import shlex
import time
from base64 import b64encode
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone

from driftree import (
    DynamicModelForestClassifier,
    DynamicModelTreeClassifier,
    DynamicModelTreeRegressor,
    FIMTDDClassifier,
    FIMTDDRegressor,
    load,
)
from driftree.serve import app as app_module
from driftree.serve.app import make_app
from driftree.serve.recovery import open_model
from driftree.serve.requests import Limits
from driftree.serve.writer import Writer
from driftree.show.report import report_page
from serving import ask, draw_batches, learn_offline, to_bytes

TOKEN = "a-token-of-some-length"
LIMITS = Limits(max_body=20_000, max_rows=50, max_features=20, max_labels=5)


def start(path, **options):
    recovered = open_model(path, limits=LIMITS, **options)
    recovered.writer.start()
    return recovered


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """An application whose model has learnt batches through it, and these batches."""
    recovered = start(tmp_path_factory.mktemp("served") / "model.dmt", new=True)
    app, batches = make_app(recovered.writer), draw_batches(100, seed=3)
    for i, batch in enumerate(batches):
        body = {"rows": batch.rows, "labels": batch.labels, "weights": batch.weights}
        answer = ask(app, "POST", "/learn", body, headers={"Idempotency-Key": batch.key})
        n_rows = len(batch.rows)
        assert answer.json == {"sequence": i + 1, "rows": n_rows, "repeated": False}
    yield app, batches
    recovered.writer.close()
    os.close(recovered.lock)


@pytest.fixture(scope="module")
def model(served):
    return learn_offline(served[1])


# ---------------------------------------------------------------------- what it answers
def test_the_documented_requests_get_the_documented_answers(tmp_path):
    page = (Path(__file__).parents[2] / "docs" / "serve.md").read_text()
    calls = re.findall(r"curl localhost:8000(/\w+) .*?-d '(.*?)'\n# (.*?)\n", page, re.DOTALL)
    recovered = start(tmp_path / "model.dmt", new=True)
    app = make_app(recovered.writer)
    assert [path for path, _, _ in calls] == ["/learn", "/predict"]
    for path, body, answer in calls:
        found = ask(app, "POST", path, json.loads(body)).json
        probabilities = found.pop("probabilities", [])
        expected = json.loads(answer)
        np.testing.assert_allclose(probabilities, expected.pop("probabilities", []), rtol=1e-12)
        assert found == expected
    recovered.writer.close()
    os.close(recovered.lock)


def test_predictions_are_those_of_the_model(served, model):
    rows = [{"a": 0.5, "b": -1, "car": "van"}, {"a": None, "never seen": True}, {"car": "bus"}]
    answer = ask(served[0], "POST", "/predict", {"rows": rows})
    assert answer.status == 200
    assert answer.json["classes"] == model.classes_.tolist()
    assert answer.json["unknown"] == ["never seen"]
    for row, label, shares in zip(
        rows, answer.json["labels"], answer.json["probabilities"], strict=True
    ):
        assert label == model.predict_one(row)
        assert shares == list(model.predict_proba_one(row).values())


def test_rows_of_words_may_be_empty_and_have_very_many_names(tmp_path):
    rng = np.random.default_rng(1)
    batches = []
    for _ in range(40):
        rows = [
            {f"w{i}": 1 for i in rng.zipf(1.5, size=size) % 500} for size in rng.integers(0, 6, 10)
        ]
        batches.append((rows, ["spam" if "w1" in row else "ham" for row in rows]))
    batches[0][0][:3] = [{}, {"w1": 1}, {"w2": 1, "lang": "en"}]
    batches[1][0][0] = {f"w{i}": 1 for i in range(30)}  # more names than other models may have
    recovered, model = start(tmp_path / "model.dmt", new=True), DynamicModelTreeClassifier()
    app = make_app(recovered.writer)
    for rows, labels in batches:
        assert ask(app, "POST", "/learn", {"rows": rows, "labels": labels}).status == 200
        model.learn_many(rows, labels)
    found = ask(app, "POST", "/predict", {"rows": [{"w1": 1, "w3": 1, "new": 1}, {}]}).json
    assert found["unknown"] == ["new"]
    assert found["probabilities"][1] == list(model.predict_proba_one({}).values())
    assert ask(app, "POST", "/explain", {"row": {}}).status == 200
    summary, page = ask(app, "GET", "/model").json, ask(app, "GET", "/").body.decode()
    assert summary["n_features"] > 100 > len(summary["features"])
    assert f"from {summary['n_features']} features" in page
    assert f"{summary['n_features'] - len(summary['features'])} features without a column" in page
    os.close(recovered.lock)  # as if it were killed
    again = start(tmp_path / "model.dmt")
    assert to_bytes(again.writer.model) == to_bytes(model)
    again.writer.close()
    os.close(again.lock)


def test_the_first_batch_may_show_that_rows_are_sparse(tmp_path):
    recovered = start(tmp_path / "model.dmt", new=True)
    rows = [{f"w{i}": 1, f"w{i + 1}": 1} for i in range(30)]  # more names than dense rows may have
    answer = ask(
        make_app(recovered.writer), "POST", "/learn", {"rows": rows, "labels": [0, 1] * 15}
    )
    assert (answer.status, answer.json.get("rows")) == (200, 30)
    recovered.writer.close()
    os.close(recovered.lock)


def test_sparse_names_that_json_has_not_are_refused(tmp_path):
    model = DynamicModelTreeClassifier(absent="zero")
    model.learn_many([{7: 1}, {8: 1}], [0, 1])
    model.save(tmp_path / "model.dmt")
    with pytest.raises(ValueError, match="a feature named 7, but names are text in JSON"):
        start(tmp_path / "model.dmt")


def test_labels_are_predicted_by_the_threshold():
    rng = np.random.default_rng(1)
    X = rng.uniform(-1, 1, size=(3000, 2))
    y = np.where(X[:, 0] + rng.normal(size=3000) > 2, "fraud", "fine")
    wish = {"recall": 0.9, "positive": "fraud"}
    model = DynamicModelTreeClassifier(threshold=wish).partial_fit(X, y)
    rows = [{"x0": a, "x1": b} for a, b in X[:200].tolist()]
    found = ask(make_app(keep(model, max_rows=200)), "POST", "/predict", {"rows": rows}).json
    most = [found["classes"][int(np.argmax(row))] for row in found["probabilities"]]
    assert found["labels"] == [model.predict_one(row) for row in rows] != most


def late_model():
    """Return a model of rows with a time: what is ordered on Sundays comes late."""
    model = DynamicModelTreeClassifier()
    for day in range(400):
        moment = dt.datetime(2024, 1, 1, 8, 30) + dt.timedelta(days=day)
        label = "late" if moment.weekday() == 6 else "soon"
        model.learn_one({"ordered": moment, "size": day % 3}, label)
    return model


def test_times_are_text_where_the_model_knows_their_parts(tmp_path):
    late_model().save(tmp_path / "model.dmt")
    recovered = start(tmp_path / "model.dmt")
    app, model = make_app(recovered.writer), late_model()
    row = {"ordered": "2024-06-02T08:30:00", "size": 1}
    same = {"ordered": dt.datetime(2024, 6, 2, 8, 30), "size": 1}
    found = ask(app, "POST", "/predict", {"rows": [row, {"ordered": "2024-06-03"}]}).json
    assert (found["labels"], found["unknown"]) == (["late", "soon"], [])
    assert found["probabilities"][0] == list(model.predict_proba_one(same).values())
    assert ask(app, "POST", "/explain", {"row": row}).json["text"] == str(model.explain_one(same))
    [way] = ask(app, "POST", "/counterfactual", {"row": row}).json["counterfactuals"]
    assert way["prediction"] == "soon"
    answer = ask(app, "POST", "/learn", {"rows": [row], "labels": ["late"]})
    assert answer.status == 200
    model.learn_one(same, "late")
    names = ask(app, "GET", "/model").json["features"]
    assert "ordered" not in names
    assert "ordered: weekday" in names
    assert recovered.writer.model.predict_proba_one(same) == model.predict_proba_one(same)
    answer = ask(
        app, "POST", "/learn", {"rows": [row, {"ordered": "soon"}], "labels": ["late"] * 2}
    )
    assert answer.status == 422
    assert answer.json["detail"].startswith("row 1: column 'ordered' holds times such as")
    recovered.writer.close()
    os.close(recovered.lock)


def test_explanations_are_those_of_the_model(served, model):
    row = {"a": 0.5, "b": -1, "car": "van", "x": 1}
    answer, why = ask(served[0], "POST", "/explain", {"row": row}).json, model.explain_one(row)
    assert answer["text"] == str(why)
    [logit] = answer["logits"]
    assert (logit["label"], logit["intercept"]) == (why.label, why.intercept)
    assert logit["contributions"] == why.contributions
    assert answer["unknown"] == ["x"]
    tree = ask(served[0], "GET", "/explain").json
    assert tree["rules"] == [str(rule) for rule in model.rules()]


def test_events_say_why_it_changed():
    X = np.random.default_rng(1).uniform(-1, 1, size=(3000, 2))
    y = ((X[:, 0] > 0) ^ (X[:, 1] > 0), abs(X[:, 0]) > 0.5)
    model = DynamicModelTreeClassifier().partial_fit(X, y[0]).partial_fit(X, y[1])
    app = make_app(keep(model))
    events = ask(app, "GET", "/events").json["events"]
    assert {event["kind"] for event in events} >= {"split", "bend"}
    for event, own in zip(events, model.events_, strict=True):
        assert event["why"] == str(own)
        condition = getattr(own, "condition", None)
        assert event["condition"] == (None if condition is None else str(condition))
        assert event["curves"] == [str(curve) for curve in getattr(own, "curves", ())]
    first = events[0]["n_rows"]
    assert ask(app, "GET", f"/events?after_row={first - 1}").json["events"] == events
    assert ask(app, "GET", f"/events?after_row={first}").json["events"] == events[1:]
    for query in ("after_row=-1", "limit=0", "limit=x", "after_row=" + "9" * 5000):
        assert ask(app, "GET", f"/events?{query}").status == 422


@pytest.mark.parametrize("kind", [DynamicModelTreeClassifier, DynamicModelForestClassifier])
def test_drifts_are_listed_counted_and_told(kind):
    rng = np.random.default_rng(1)
    X = rng.uniform(-1, 1, size=(40_000, 2))
    y = X.sum(axis=1) > 0
    y[30_000:] = X[30_000:, 0] - X[30_000:, 1] > 0
    model = kind(**({} if kind is DynamicModelTreeClassifier else {"n_trees": 2})).partial_fit(X, y)
    app = make_app(keep(model))
    [drift] = ask(app, "GET", "/drifts").json["drifts"]
    [own] = model.drifts()
    assert drift == own.to_dict()
    assert ask(app, "GET", f"/drifts?after_row={own.n_rows}").json == {"drifts": []}
    assert ask(app, "GET", "/drifts?limit=0").status == 422
    figures = read_metrics(app)
    assert figures["driftree_drifts_total"] == 1
    assert figures["driftree_last_drift_row"] == own.n_rows
    assert figures["driftree_changes_total"] == len(model.events_)
    assert 0 < figures["driftree_recent_loss"] < 1
    shares = [figures[f'driftree_label_share{{label="{label}"}}'] for label in (True, False)]
    assert sum(shares) == pytest.approx(1)


def test_shares_of_labels_with_the_same_text_are_told_apart():
    model = DynamicModelTreeClassifier()
    model.learn_many({"a": np.arange(10.0)}, np.array([1, "1", 1, 1, 1] * 2, dtype=object))
    figures = read_metrics(make_app(keep(model)))
    shares = [figures[f'driftree_label_share{{label="{label}"}}'] for label in ("1", "'1'")]
    assert shares == pytest.approx([0.8, 0.2])


def test_what_grafana_and_prometheus_ask_for_is_told(served):
    folder = Path(__file__).parents[2] / "docs" / "grafana"
    panels = json.loads((folder / "driftree.json").read_text(encoding="utf-8"))["panels"]
    taken = set()
    for panel in panels:
        x, y, w, h = (panel["gridPos"][name] for name in "xywh")
        cells = {(x + i, y + j) for i in range(w) for j in range(h)}
        assert x + w <= 24, panel["title"]
        assert not cells & taken, panel["title"]
        taken |= cells
    assert len({panel["id"] for panel in panels}) == len(panels)
    asked = [target["expr"] for panel in panels for target in panel["targets"]]
    asked += re.findall("expr: (.+)", (folder / "alerts.yml").read_text(encoding="utf-8"))
    told = {name.partition("{")[0] for name in read_metrics(served[0])}
    for question in asked:
        names = set(re.findall(r"driftree_\w+", question))
        assert names, question
        assert names <= told, question


def keep(model, **limits):
    """Return a writer that only reads."""
    return Writer(model, Path("model.dmt"), None, limits=replace(LIMITS, **limits))


def test_the_model_can_be_fetched_and_is_bit_for_bit_the_same(served, model, tmp_path):
    answer = ask(served[0], "GET", "/model/file")
    assert answer.body == to_bytes(model)
    (tmp_path / "model.dmt").write_bytes(answer.body)
    assert load(tmp_path / "model.dmt").n_rows_seen_ == model.n_rows_seen_
    told = ask(served[0], "GET", "/model").json
    assert (told["n_rows_seen"], told["sequence"]) == (model.n_rows_seen_, len(served[1]))
    assert told["features"] == ["a", "b", "car", "late"]


def test_metrics_count(served):
    before = read_metrics(served[0])
    ask(served[0], "POST", "/predict", {"rows": [{"a": 1}]})
    ask(served[0], "GET", "/no/such/path")
    ask(served[0], "BREW", '/x"y')
    after = read_metrics(served[0])

    def grown(name):
        return after.get(name, 0) - before.get(name, 0)

    assert grown('driftree_requests_total{method="POST",route="/predict",status="200"}') == 1
    assert grown('driftree_requests_total{method="GET",route="other",status="404"}') == 1
    assert grown('driftree_requests_total{method="other",route="other",status="404"}') == 1
    assert grown('driftree_request_seconds_bucket{route="/predict",le="+Inf"}') == 1
    assert grown('driftree_request_seconds_count{route="/predict"}') == 1
    assert after["driftree_rows_learnt_total"] == sum(len(one.rows) for one in served[1])
    assert after["driftree_learning"] == 1
    assert after["driftree_journal_bytes"] > 1000


def read_metrics(app):
    answer = ask(app, "GET", "/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    figures = {}
    for line in answer.body.decode("ascii").splitlines():
        if not line.startswith("# "):
            found = re.fullmatch(r'([a-z_]+(?:\{(?:[a-z]+="[^"\\]*",?)+\})?) (\S+)', line)
            figures[found[1]] = float(found[2])
    return figures


def test_a_repeated_key_is_not_learnt_again(served):
    app, batches = served
    before = ask(app, "GET", "/model/file").body
    batch = batches[7]
    body = {"rows": batch.rows, "labels": batch.labels, "weights": batch.weights}
    answer = ask(app, "POST", "/learn", body, headers={"Idempotency-Key": batch.key})
    assert answer.json == {"sequence": 8, "rows": len(batch.rows), "repeated": True}
    body["labels"] = [*body["labels"][::-1], "up"]
    answer = ask(app, "POST", "/learn", body, headers={"Idempotency-Key": batch.key})
    assert (answer.status, "for another batch" in answer.json["detail"]) == (422, True)
    assert ask(app, "GET", "/model/file").body == before


# ---------------------------------------------------------------------- what it refuses
ROW = b'{"rows": [{"a": 1}, {"a": %s}]}'
REFUSED = {
    "no json": (b"{", 400, "the body is not valid JSON: Expecting property name"),
    "empty": (b"", 400, "not valid JSON"),
    "no utf-8": (b'{"rows": [{"\xff": 1}]}', 400, "'utf-8' codec can't decode"),
    "utf-16": ('{"rows": [{"a": 1}]}'.encode("utf-16"), 400, "not valid JSON"),
    "twice": (b'{"rows": [{"a": 1, "b": 2, "a": 1}]}', 400, "duplicate key 'a'"),
    "deep": (b"[" * 19_000, 400, "nested too deeply"),
    "deep cell": (ROW % (b"[" * 9000 + b"]" * 9000), 400, "nested too deeply"),
    "digits": (ROW % (b"9" * 5000), 400, "too many digits"),
    "list": (b"[1]", 422, "the body: Input should be a valid dictionary"),
    "no rows": (b"{}", 422, "rows: Field required"),
    "zero rows": (b'{"rows": []}', 422, "rows: List should have at least 1 item"),
    "more": (b'{"rows": [{"a": 1}], "x": 1}', 422, "x: Extra inputs are not permitted"),
    "row is a list": (b'{"rows": [{"a": 1}, [1]]}', 422, "rows, 1: Input should be a valid dict"),
    "empty row": (b'{"rows": [{"a": 1}, {}]}', 422, "row 1 has no features"),
    "nan": (ROW % b"NaN", 422, "column 'a', row 1: JSON has no nan: use null"),
    "infinity": (ROW % b"-Infinity", 422, "column 'a', row 1: JSON has no -inf"),
    "1e999": (ROW % b"1e999", 422, "column 'a', row 1: JSON has no inf"),
    "huge": (ROW % (b"9" * 400), 422, "column 'a', row 1: the number is too large for float64"),
    "cell is a list": (ROW % b"[1]", 422, "column 'a', row 1 must be .* got a list"),
    "cell is an object": (ROW % b'{"b": 1}', 422, "column 'a', row 1 must be .* got an object"),
    "text": (ROW % b'"text"', 422, "column 'a' is numeric, but row 1 holds 'text'"),
    "long text": (b'{"rows": [{"car": "%s"}]}' % (b"x" * 1001), 422, "exceeds 1,000 characters"),
    "long name": (b'{"rows": [{"%s": 1}]}' % (b"x" * 1001), 422, "name exceeds 1,000"),
    "rows": (json.dumps({"rows": [{"a": 1}] * 51}).encode(), 413, "51 rows are more than the 50"),
    "features": (
        json.dumps({"rows": [{f"{i}": 1 for i in range(21)}]}).encode(),
        422,
        "the rows name 21 features, more than the 20 allowed",
    ),
    "large": (b'{"rows": [{"a": "%s"}]}' % (b"x" * 20_000), 413, "more than 20,000 bytes"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_wrong_with_rows_is_said(served, case):
    body, status, words = REFUSED[case]
    before = ask(served[0], "GET", "/model/file").body
    labels = body.replace(b'"rows"', b'"labels": ["up", "down"], "rows"', 1)
    for path, sent in (("/predict", body), ("/learn", labels)):
        answer = ask(served[0], "POST", path, sent)
        assert (answer.status, bool(re.search(words, answer.json["detail"]))) == (status, True)
    assert ask(served[0], "GET", "/model/file").body == before


@pytest.mark.parametrize(
    ("labels", "weights", "words"),
    [
        (["up"], None, "X has 2 rows, but y has 1 labels: give one per row"),
        (["up", None], None, "the label of row 1 is None"),
        (["up", ["down"]], None, "labels, row 1 must be .* got a list"),
        (["up", float("nan")], None, "labels, row 1: JSON has no nan"),
        (["up", 9**999], None, "labels, row 1: the number is too large"),
        (["up", "x" * 1001], None, "labels, row 1: the text exceeds 1,000"),
        ("up", None, "labels: Input should be a valid list"),
        (["up", "down"], [1], "sample_weight"),
        (["up", "down"], [1, -1], "row 1 has the weight -1.0"),
        (["up", "down"], [1, "2"], "weights, row 1 must be a number, got '2'"),
        (["up", "down"], [1, True], "weights, row 1 must be a number, got True"),
        (["up", "down"], [1, float("inf")], "weights, row 1: JSON has no inf"),
        (["up", "down"], 2, "weights: Input should be a valid list"),
    ],
)
def test_what_is_wrong_with_labels_and_weights_is_said(served, labels, weights, words):
    body = {"rows": [{"a": 1}, {"a": 2}], "labels": labels, "weights": weights}
    before = ask(served[0], "GET", "/model/file").body
    answer = ask(served[0], "POST", "/learn", body)
    assert (answer.status, bool(re.search(words, answer.json["detail"]))) == (422, True)
    assert ask(served[0], "GET", "/model/file").body == before


def test_a_body_is_counted_while_it_is_read(served):
    body = {"rows": [{"a": 1}]}
    assert ask(served[0], "POST", "/predict", body, chunk=3).status == 200
    large = {"rows": [{"a": "x" * 900}] * 40}
    for headers in ({}, {"content-length": "7"}, {"content-length": "9" * 4000}):
        answer = ask(served[0], "POST", "/predict", large, chunk=1000, headers=headers)
        assert (answer.status, answer.headers["connection"]) == (413, "close")


def test_a_client_that_goes_leaves_no_trace(served):
    before = ask(served[0], "GET", "/model/file").body
    cut = {"headers": {"content-length": "100"}, "chunk": 10}
    assert ask(served[0], "POST", "/learn", b"", **cut).status == 400
    assert ask(served[0], "GET", "/model/file").body == before


def test_a_slow_body_is_not_waited_for():
    writer = keep(DynamicModelTreeClassifier())
    writer.limits = Limits(body_seconds=0.05)
    app = make_app(writer)

    async def slow(scope, receive, send):
        async def wait():
            await asyncio.sleep(60)

        await app(scope, wait, send)

    begin = time.monotonic()
    assert ask(slow, "POST", "/predict", {"rows": [{"a": 1}]}).status == 408
    assert time.monotonic() - begin < 30


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_a_form_of_a_web_page_is_no_request(served, kind):
    answer = ask(served[0], "POST", "/learn", {}, headers={"content-type": kind})
    assert answer.status == 415


@pytest.mark.parametrize("key", ["", "x" * 65, "a\tb", "é"])
def test_an_unsuitable_key_is_refused(served, key):
    headers = {"Idempotency-Key": key}
    answer = ask(served[0], "POST", "/learn", {}, headers=headers)
    assert (answer.status, "Idempotency-Key must be" in answer.json["detail"]) == (400, True)


def test_names_that_are_no_proper_unicode_do_no_harm(tmp_path):
    recovered = start(tmp_path / "model.dmt", new=True)
    app = make_app(recovered.writer)
    body = b'{"rows": [{"\\ud800": "\\udfff"}, {"\\u0000": 1}], "labels": ["\\ud800", "\\""]}'
    assert ask(app, "POST", "/learn", body).status == 200
    for method, path, sent in [
        ("POST", "/predict", b'{"rows": [{"\\ud800": 1}]}'),
        ("POST", "/explain", b'{"row": {"\\ud800": "\\udfff"}}'),
        ("GET", "/explain", b""),
        ("GET", "/model", b""),
        ("GET", "/model/file", b""),
    ]:
        assert ask(app, method, path, sent).status == 200
    recovered.writer.close()
    os.close(recovered.lock)
    again = start(tmp_path / "model.dmt")
    assert again.writer.sequence == 1
    again.writer.close()
    os.close(again.lock)


def test_before_anything_was_learnt_it_says_so():
    app = make_app(keep(DynamicModelTreeClassifier()))
    for method, path, body in [
        ("POST", "/predict", {"rows": [{"a": 1}]}),
        ("POST", "/explain", {"row": {"a": 1}}),
        ("GET", "/explain", b""),
    ]:
        answer = ask(app, method, path, body)
        assert (answer.status, answer.json["detail"][:21]) == (409, "nothing has been lear")
    assert ask(app, "GET", "/events").json == {"events": []}
    assert ask(app, "GET", "/model").json["n_rows_seen"] == 0
    assert ask(app, "POST", "/learn", {"rows": [{"a": 1}], "labels": [1]}).status == 403
    assert ask(app, "GET", "/health").json == {"status": "ok", "learning": False}


def test_a_model_that_does_not_explain_itself_says_so():
    model = FIMTDDClassifier()
    model.learn_one({"a": 1.0}, 1)
    app = make_app(keep(model))
    assert ask(app, "POST", "/predict", {"rows": [{"a": 1}]}).json["labels"] == [1]
    assert ask(app, "POST", "/explain", {"row": {"a": 1}}).status == 409
    assert ask(app, "GET", "/events").json == {"events": []}


def test_a_writer_that_failed_is_not_healthy():
    writer = keep(DynamicModelTreeClassifier())
    writer.failure = "learning has stopped"
    answer = ask(make_app(writer), "GET", "/health")
    assert (answer.status, answer.json["status"]) == (503, "failed")


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)
ROWS = st.lists(st.dictionaries(st.sampled_from(["a", "b", "car", "new"]), VALUES) | VALUES)


@given(rows=ROWS | VALUES, labels=st.lists(VALUES) | VALUES, weights=VALUES)
def test_whatever_comes_is_learnt_or_refused_whole(served, rows, labels, weights):
    before = ask(served[0], "GET", "/model/file").body
    sequence = ask(served[0], "GET", "/model").json["sequence"]
    body = {"rows": rows, "labels": labels, "weights": weights}
    answer = ask(served[0], "POST", "/learn", body)
    assert answer.status in (200, 400, 413, 422)
    if answer.status == 200:
        assert answer.json["sequence"] == sequence + 1
    else:
        assert ask(served[0], "GET", "/model/file").body == before


# ---------------------------------------------------------------------- who may come in
ENDPOINTS = [("POST", "/predict"), ("POST", "/learn"), ("POST", "/explain"), ("GET", "/explain")]
ENDPOINTS += [("GET", path) for path in ("/drifts", "/events", "/metrics", "/model", "/model/file")]


@pytest.mark.parametrize(("method", "path"), ENDPOINTS)
def test_without_the_token_nobody_learns_anything(served, method, path):
    app = make_app(served[0].state.writer, token=TOKEN)
    for wrong in ({}, *({"authorization": text} for text in WRONG_TOKENS)):
        answer = ask(app, method, path, b"not even read", headers=wrong)
        assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer")
    answer = ask(app, method, path, b"{", headers={"authorization": f"bearer {TOKEN}"})
    assert answer.status in (200, 400)


WRONG_TOKENS = [TOKEN, f"Basic {TOKEN}", "Bearer", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}"]
WRONG_TOKENS += ["Bearer é", f"Bearer {TOKEN} {TOKEN}", ""]


def test_what_is_open_says_nothing_of_the_model(served):
    app = make_app(served[0].state.writer, token=TOKEN)
    assert ask(app, "GET", "/health").json == {"status": "ok", "learning": True}
    schema = ask(app, "GET", "/openapi.json")
    assert schema.status == 200
    assert b'"late"' not in schema.body
    for path in ("/docs", "/redoc", "/", "/health/", "//health"):
        assert ask(app, "GET", path).status in (401, 404)


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LocalHost:80", 200),
        ("127.0.0.1:8000", 200),
        ("[::1]:8000", 200),
        ("evil.example", 421),
        ("localhost.evil.example", 421),
        ("127.0.0.1.evil.example:80", 421),
        ("", 421),
        ("[::1]", 200),
        ("[::1]:", 200),
        ("[::1]evil.example", 421),
        ("[::1]:80@evil.example", 421),
        ("[::1", 421),
        ("[::1]]", 421),
        ("::1", 421),
        ("[localhost]", 421),
        ("[127.0.0.1]", 421),
        ("localhost:80@evil.example", 421),
        ("localhost:80.evil.example", 421),
        ("localhost:x", 421),
        ("user@localhost", 421),
        ("localhost/evil.example", 421),
        ("localhost,evil.example", 421),
        ("localhost evil.example", 421),
    ],
)
def test_on_loopback_only_requests_for_this_machine_are_answered(served, host, status):
    answer = ask(served[0], "GET", "/health", headers={"host": host})
    assert answer.status == status
    app = make_app(served[0].state.writer, token=TOKEN, only_loopback=False)
    assert ask(app, "GET", "/health", headers={"host": host}).status == 200


def test_no_other_page_may_read_the_answers(served):
    headers = {"origin": "https://evil.example", "access-control-request-method": "POST"}
    for method, path in (("OPTIONS", "/predict"), ("GET", "/model")):
        answer = ask(served[0], method, path, headers=headers)
        assert not [name for name in answer.headers if name.startswith("access-control")]
    assert ask(served[0], "GET", "/model").headers["cache-control"] == "no-store"


# ---------------------------------------------------------------------- numbers
@pytest.fixture(scope="module")
def numbers(tmp_path_factory):
    """The application of a regressor that has learnt batches through it, and that regressor."""
    path = tmp_path_factory.mktemp("numbers") / "model.dmt"
    recovered = start(path, new=True, task="regression")
    app, batches = make_app(recovered.writer), draw_batches(100, seed=3, are_numbers=True)
    assert ask(app, "POST", "/predict", {"rows": [{"a": 1}]}).status == 409
    for i, batch in enumerate(batches):
        body = {"rows": batch.rows, "targets": batch.labels, "weights": batch.weights}
        answer = ask(app, "POST", "/learn", body, headers={"Idempotency-Key": batch.key})
        assert answer.json == {"sequence": i + 1, "rows": len(batch.rows), "repeated": False}
    yield app, learn_offline(batches, are_numbers=True)
    recovered.writer.close()
    os.close(recovered.lock)
    assert to_bytes(load(path)) == to_bytes(learn_offline(batches, are_numbers=True))


def test_numbers_are_those_of_the_model(numbers):
    app, model = numbers
    rows = [{"a": 0.5, "b": -1, "car": "van"}, {"a": None, "never seen": True}, {"car": "bus"}]
    answer = ask(app, "POST", "/predict", {"rows": rows})
    assert answer.status == 200
    assert answer.json == {
        "predictions": [model.predict_one(row) for row in rows],
        "unknown": ["never seen"],
    }
    assert model.n_leaves_ == ask(app, "GET", "/model").json["n_leaves"]
    summary = ask(app, "GET", "/model").json
    assert (summary["kind"], summary["classes"]) == ("DynamicModelTreeRegressor", [])
    assert summary["features"] == ["a", "b", "car", "late"]
    assert "driftree_rows_seen" in ask(app, "GET", "/metrics").body.decode()


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"rows": [{"a": 1}], "labels": [1]}, "targets: Field required"),
        ({"rows": [{"a": 1}], "targets": ["1"]}, "targets, row 0 must be a number, got '1'"),
        ({"rows": [{"a": 1}], "targets": [None]}, "targets, row 0 must be a number, got None"),
        ({"rows": [{"a": 1}], "targets": [True]}, "targets, row 0 must be a number, got True"),
        ({"rows": [{"a": 1}], "targets": [1e200]}, "beyond 1e+100: the target of row 0"),
        ({"rows": [{"a": 1}], "targets": [1, 2]}, "X has 1 rows, but y has 2 numbers"),
    ],
)
def test_targets_that_are_no_numbers_are_refused(numbers, body, words):
    answer = ask(numbers[0], "POST", "/learn", body)
    assert answer.status == 422
    assert words in answer.json["detail"]


def test_the_schema_says_what_is_predicted(numbers, served):
    for app, what in ((numbers[0], "targets"), (served[0], "labels")):
        learn = ask(app, "GET", "/openapi.json").json["paths"]["/learn"]["post"]
        body = learn["requestBody"]["content"]["application/json"]["schema"]
        assert sorted(body["required"]) == sorted(["rows", what])


def test_fimtdd_serves_numbers_and_does_not_explain_them():
    X = np.random.default_rng(1).normal(size=(500, 2))
    model = FIMTDDRegressor().partial_fit(X, X[:, 0])
    app = make_app(keep(model))
    answer = ask(app, "POST", "/predict", {"rows": [{"x0": 0.5, "x1": 0.0}]})
    assert answer.json["predictions"] == [model.predict_one({"x0": 0.5, "x1": 0.0})]
    assert ask(app, "POST", "/explain", {"row": {"x0": 1}}).status == 409


def test_a_task_is_for_a_new_model(tmp_path):
    FIMTDDRegressor().save(tmp_path / "model.dmt")
    with pytest.raises(ValueError, match="--task is for --new"):
        open_model(tmp_path / "model.dmt", task="regression")


# ---------------------------------------------------------------------- counterfactuals
ROW = {"a": 0.5, "b": 0.7, "car": "van"}


@pytest.mark.parametrize(
    "wish",
    [
        {},
        {"target": "up"},
        {"fixed": ["a"]},
        {"ranges": {"a": [None, 0.2], "car": ["van", "truck"]}},
        {"probability": 0.7, "max_changes": 2},
        {"n": 3, "max_changes": 2},
        {"target": "up", "fixed": ["a", "b", "car"]},
    ],
)
def test_counterfactuals_are_those_of_the_model(served, model, wish):
    answer = ask(served[0], "POST", "/counterfactual", {"row": ROW | {"x": 1}, **wish})
    assert answer.status == 200
    assert answer.json["unknown"] == ["x"]
    if "n" in wish:
        ways = model.counterfactuals(ROW, **wish)
    else:
        ways = [model.counterfactual(ROW, **wish)]
    for found, own in zip(answer.json["counterfactuals"], ways, strict=True):
        assert found["exists"] == own.exists
        assert found["reason"] == own.reason
        changed = {one["feature"]: (one["before"], one["after"]) for one in found["changes"]}
        assert changed == own.changes
        if own:
            row = {name: cell for name, cell in found["row"].items() if name != "x"}
            assert model.predict_one(row) == found["prediction"] == own.target
            assert found["distance"] == own.distance
        else:
            assert found["distance"] is found["row"] is None


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        ({"target": "sideways"}, "'sideways'"),
        ({"target": ["up"]}, "['up']"),
        ({"below": 3}, "below"),
        ({"fixed": ["c"]}, "fixed names 'c'"),
        ({"ranges": {"a": [1, 0]}}, "nothing lies between them"),
        ({"ranges": {"a": []}}, "at least 1 item"),
        ({"n": 11}, "less than or equal to 10"),
        ({"max_changes": 0}, "greater than or equal to 1"),
        ({"probability": 1}, "less than 1"),
        ({"wish": 1}, "Extra inputs are not permitted"),
    ],
)
def test_what_is_wrong_with_a_wish_is_said(served, wish, words):
    answer = ask(served[0], "POST", "/counterfactual", {"row": ROW, **wish})
    assert answer.status == 422
    assert words in answer.json["detail"]


def test_a_number_can_be_wished_for(numbers):
    app, _ = numbers
    answer = ask(app, "POST", "/counterfactual", {"row": {"a": 0.1, "b": 0.2}, "above": 230})
    [way] = answer.json["counterfactuals"]
    assert way["prediction"] > 230
    assert way["probability"] is None


def test_a_search_that_takes_too_long_is_ended(served, model):
    app = make_app(keep(model, search_seconds=0.0))
    for wish in ({}, {"n": 2}):
        answer = ask(app, "POST", "/counterfactual", {"row": ROW, **wish})
        assert (answer.status, "within 0 seconds" in answer.json["detail"]) == (422, True)


def test_a_forest_says_which_wishes_it_does_not_take():
    X = np.random.default_rng(1).uniform(-1, 1, size=(500, 2))
    forest = DynamicModelForestClassifier(n_trees=2).partial_fit(X, (X[:, 0] > 0).astype(str))
    app = make_app(keep(forest))
    row = {"x0": -0.5, "x1": 0.1}
    [way] = ask(app, "POST", "/counterfactual", {"row": row}).json["counterfactuals"]
    assert way["prediction"] == forest.predict_one(way["row"]) == "True"
    answer = ask(app, "POST", "/counterfactual", {"row": row, "n": 2})
    assert (answer.status, "a forest supports neither" in answer.json["detail"]) == (422, True)
    assert b"One tree at a time" in ask(app, "GET", "/report").body


def test_few_searches_and_reports_are_made_at_a_time(served, model):
    app = make_app(keep(model))
    app.state.n_long = app_module.MAX_LONG
    for method, path, body in (("POST", "/counterfactual", {"row": ROW}), ("GET", "/report", b"")):
        answer = ask(app, method, path, body)
        assert (answer.status, answer.headers["retry-after"]) == (503, "1")
    app.state.n_long -= 1
    assert ask(app, "GET", "/report").status == 200


# ---------------------------------------------------------------------- pages
def page_of(app, path="/", **headers):
    answer = ask(app, "GET", path, headers=headers)
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    return answer, answer.body.decode()


def test_the_report_is_that_of_the_model(served, model):
    answer, page = page_of(make_app(keep(model)), "/report")
    assert page == report_page(model, title="model.dmt")
    assert answer.headers["content-security-policy"] == "frame-ancestors 'none'"


def test_while_a_report_is_made_the_model_learns(served, monkeypatch):
    app, _ = served
    learnt = []

    def write(model, **_):
        body = {"rows": [{"a": 1.0}], "labels": ["up"]}
        before = model.n_rows_seen_
        waiting = app.state.writer.submit(app_module.LearnBatch(**body))
        learnt.append(waiting.result(timeout=30)[0].n_rows)
        assert model.n_rows_seen_ == before  # the page is of one state
        return "page"

    monkeypatch.setattr(app_module, "report_page", write)
    assert page_of(app, "/report")[1] == "page"
    assert learnt == [1]


def test_the_landing_page_says_what_is_served_and_how_to_ask_it(served, model):
    app, _ = served
    answer, page = page_of(app, host="127.0.0.1:8080")
    assert "<script" not in page
    assert "http://127.0.0.1:8080/predict" in page
    for name in ("model.dmt", "DynamicModelTreeClassifier", *model.classes_, "car", "2 levels"):
        assert name in page
    paths = json.loads(ask(app, "GET", "/openapi.json").body)["paths"]
    told = set(re.findall(r"(?:POST |GET <a href=\"[^\"]*\">)(/[a-z/.]*)", page))
    assert told == {*paths, "/openapi.json"} - {"/"}
    assert set(re.findall(r'(?:href|src)="([^"]*)"', page)) <= told
    style = re.search("<style>(.*)</style>", page, re.DOTALL)[1]
    digest = b64encode(sha256(style.encode()).digest()).decode()
    policy = answer.headers["content-security-policy"]
    assert policy.startswith(f"default-src 'none'; style-src 'sha256-{digest}'; ")


def test_the_commands_on_the_landing_page_work(served):
    app, _ = served
    page = html.unescape(page_of(app)[1])
    calls = re.findall(r"curl http://localhost:8000(/\w+) .*?\n  -d (.*?)</pre>", page, re.DOTALL)
    assert [path for path, _ in calls] == ["/predict", "/learn", "/explain", "/counterfactual"]
    for path, quoted in calls:
        [data] = shlex.split(quoted)
        assert ask(app, "POST", path, data.encode()).status == 200


def test_names_are_text_on_the_landing_page():
    nasty = "<b>'\u202e\ud800"
    model = DynamicModelTreeClassifier()
    model.learn_many({nasty: np.array([1.0, 2.0])}, [nasty, "b"])
    answer = ask(make_app(keep(model)), "GET", "/", headers={"host": "localhost"})
    assert answer.status == 200
    assert b"<b>" not in answer.body
    assert b"&lt;b&gt;" in answer.body
    strange = make_app(keep(model), only_loopback=False)
    assert b"evil" not in ask(strange, "GET", "/", headers={"host": "evil'; rm"}).body


@pytest.mark.parametrize(
    "model",
    [
        DynamicModelTreeClassifier(),
        DynamicModelTreeRegressor(),
        FIMTDDRegressor(),
        DynamicModelForestClassifier(n_trees=2),
        DynamicModelTreeClassifier(absent="zero"),
    ],
    ids=repr,
)
def test_every_model_has_a_landing_page(model):
    model = clone(model)
    app = make_app(keep(model), token=TOKEN)
    token = {"Authorization": f"Bearer {TOKEN}"}
    assert "nothing yet" in page_of(app, **token)[1]
    for x in range(30):
        model.learn_one({"a": x, "b": x % 3}, x % 2)
    page = page_of(app, **token)[1]
    assert "has learnt 30 rows" in page
    assert "$DRIFTREE_TOKEN" in page
    assert ask(app, "GET", "/").status == 401
    expected = 409 if isinstance(model, FIMTDDRegressor) else 200
    assert ask(app, "GET", "/report", headers=token).status == expected


# ---------------------------------------------------------------------- allowed labels
def test_a_stray_label_is_refused(tmp_path):
    limits = replace(LIMITS, labels=("up", "down"))
    recovered = open_model(tmp_path / "model.dmt", new=True, limits=limits)
    recovered.writer.start()
    app = make_app(recovered.writer)
    bodies = [{"rows": [{"a": 1}] * 2, "labels": ["up", label]} for label in ("down", "sideways")]
    assert ask(app, "POST", "/learn", bodies[0]).status == 200
    answer = ask(app, "POST", "/learn", bodies[1])
    assert answer.status == 422
    assert "labels, row 1 is 'sideways', but the labels are 'up', 'down'" in answer.json["detail"]
    assert "Allowed: up, down." in page_of(app)[1]
    recovered.writer.close()
    os.close(recovered.lock)
    narrow = replace(LIMITS, labels=("up", "sideways"))
    with pytest.raises(ValueError, match="has learnt 'down', but --labels has only"):
        open_model(tmp_path / "model.dmt", limits=narrow)
    with pytest.raises(ValueError, match="this model predicts numbers"):
        open_model(tmp_path / "new.dmt", new=True, task="regression", limits=narrow)
    assert not (tmp_path / "new.dmt.journal").exists()
