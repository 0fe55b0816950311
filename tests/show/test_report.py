"""The report as a file: what is in it, and that text from data stays data."""

import base64
import json
import re
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

import quick
from driftree import DynamicModelTreeClassifier, FIMTDDClassifier
from driftree.explain.changes import KINDS
from driftree.explain.text import write_number
from driftree.learn.events import join_path
from driftree.show.report import report, to_json
from driftree.show.report_leaves import _telling
from driftree.show.scores import drift_spans
from hostile import LABELS, LEVELS, N_ROWS, SCRIPT, TITLE, learn_much, make_records

pytestmark = pytest.mark.usefixtures("quick_pace")


def read_data(path):
    """The JSON of a report, which must not contain NaN or infinity."""
    text = path.read_text(encoding="utf-8")
    [block] = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    assert not set("<>&\u2028\u2029") & set(block)
    return json.loads(block, parse_constant=lambda word: pytest.fail(f"{word} in the JSON"))


def unfold(data, text):
    """A text with the names that its numbers stand for."""
    return re.sub("\x7f(\\d+)\x7f", lambda match: data["names"][int(match[1])], text)


@pytest.mark.parametrize("name", ["whole", "folded", "without"])
def test_text_is_data_and_only_own_script_may_run(reports, name):
    text = reports[name].read_text(encoding="utf-8")
    data = read_data(reports[name])
    assert data["labels"] == list(LABELS)
    assert SCRIPT in data["inputs"]
    for part in (SCRIPT, LEVELS[0], LEVELS[2], *LABELS, TITLE, "https://"):
        assert part not in text
    assert set(re.findall("http://[^\"']*", text)) == {"http://www.w3.org/2000/svg"}
    for tag in ("script", "style"):
        [own] = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.S)
        digest = base64.b64encode(sha256(own.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in text
    assert text.count("</script>") == 2


def test_events_are_the_figures_that_were_compared(models, reports):
    events = models["whole"].events_
    data = read_data(reports["whole"])
    told = data["events"]
    assert [unfold(data, event["sentence"]) for event in told] == [str(event) for event in events]
    losses = {"before": "loss_before", "after": "loss_after"}
    for name, own in losses.items():
        figures = [getattr(event, own) for event in events]
        np.testing.assert_allclose([event[name] for event in told], figures, rtol=1e-8)
    for name in ("gain", "threshold", "rows"):
        figures = [getattr(event, name) for event in events]
        np.testing.assert_allclose([event[name] for event in told], figures, rtol=1e-5)
    assert [len(event["removed"]) for event in told] == [event.n_removed for event in events]


@pytest.mark.parametrize("name", ["whole", "folded", "moved"])
def test_rules_of_an_event_are_those_of_the_nodes_below_it(models, reports, name):
    """From the top down, left before right: the page gives them to new nodes and moved ones."""
    history, data = models[name]._tree.history, read_data(reports[name])
    tree = history.at(history.first_step - 1)
    for event, told in zip(history.events, data["events"], strict=True):
        tree = tree.after(event)
        below = tree.below(event.node) if event.kind in ("split", "replace", "shift") else ()
        rules = [join_path(tree.path(spot.node)) for spot in below]
        assert [unfold(data, rule) for rule in told["rules"]] == rules
    assert len(told["rules"]) > 2 or name != "moved"


@pytest.mark.parametrize("kind", KINDS)
def test_page_knows_every_kind_of_change(reports, kind):
    """Without a browser, too: the script stops at a kind that it has no mark or words for."""
    text = reports["whole"].read_text(encoding="utf-8")
    assert f"\n  {kind}: {{ name: " in text
    assert f'\n  {kind}: ["' in text
    assert f"\n    {kind}: () => " in text
    assert f'\n    {kind}: "' in text
    for part in (".mark", ".shape", ".badge"):
        assert f"{part}.{kind} path" in text


def test_leaves_are_the_rules_and_the_last_weights(models, reports):
    model, data = models["whole"], read_data(reports["whole"])
    lives = {(life["node"], life["since"]): life for life in data["lives"]}
    assert data["samples"][-1] == [data["last"]["step"], N_ROWS]
    now = model.tree_at(data["last"]["step"]).nodes
    for leaf, own in zip(data["leaves"], model.leaf_models(), strict=True):
        assert leaf["node"] == own.leaf
        assert unfold(data, leaf["rule"]) == (join_path(own.path) or "all rows")
        assert leaf["share"] == data["shares"][str(own.leaf)] == pytest.approx(own.share, rel=1e-5)
        assert sum(leaf["probabilities"]) == pytest.approx(1, abs=1e-3)
        life = lives[own.leaf, now[own.leaf].since_step]
        assert life["at"][-1] == len(data["samples"]) - 1
        label = LABELS[1] if LABELS[1] in own.weights else model.classes_[1]
        weights, effects = own.weights[label], own.effects[label]
        assert len(life["pairs"]) == sum(effect != 0 for effect in effects.values())
        for (_, column), series in zip(life["pairs"], life["weights"], strict=True):
            name = data["inputs"][column]
            assert series[-1] == pytest.approx(effects[name], rel=1e-5)
            if name in weights:
                value = series[-1] * data["factors"][column]
                assert value == pytest.approx(weights[name], rel=1e-5)
        curves = {data["inputs"][column]: points for _, column, *points in leaf["curves"]}
        assert curves.keys() == own.curves[label].keys()
        for name, (knots, values) in curves.items():
            expected = [own.curves[label][name](knot) for knot in knots]
            assert values == pytest.approx(expected, rel=1e-3, abs=1e-3)
            assert len(knots) > 1


def test_curves_of_numbers_far_from_0_keep_their_knots(tmp_path):
    times = 1.7e9 + np.random.default_rng(1).uniform(0, 3600, 4000)
    model = DynamicModelTreeClassifier(max_depth=0)
    model.learn_many({"time": times}, np.abs(times - 1.7e9 - 1800) < 900)
    [leaf] = read_data(report(model, None, tmp_path / "report.html"))["leaves"]
    [[*_, knots, _]] = leaf["curves"]
    curve = model.leaf_models()[0].curves[True]["time"]
    own = [knot for knot in curve.knots if curve.first <= knot <= curve.last]
    np.testing.assert_allclose(knots, own, rtol=0, atol=0.1)


def test_weights_over_time_are_the_samples(models, reports):
    data = read_data(reports["whole"])
    sampled = {sample.step: sample for sample in models["whole"]._tree.history.samples}
    number = data["inputs"].index(SCRIPT)  # a number: the weights of categories are differences
    compared = 0
    for life in data["lives"]:
        series = life["weights"][life["pairs"].index([1, number])]
        for place, rows, weight in zip(life["at"], life["rows"], series, strict=True):
            step, row = data["samples"][place]
            if step != data["last"]["step"]:
                sample = sampled[step]
                node = sample.nodes[life["node"]]
                assert (sample.n_rows, node.since_step) == (row, life["since"])
                assert (node.rows, node.weights[0, number]) == pytest.approx((rows, weight), 1e-2)
                compared += 1
    assert compared > 50


def test_learners_are_compared(reports):
    data = read_data(reports["whole"])
    titles = ["DMT (driftree)", "<b>other</b>", "VFDT (MC)"]
    assert [row["title"] for row in data["comparison"]] == titles
    first, second, _ = data["comparison"]
    assert (first["f1"][0], first["splits"], second["splits"]) == (pytest.approx(0.87), 4, None)
    assert first["seconds"] == pytest.approx(18)
    for curve in data["curves"]:
        assert len(curve["rows"]) == len(curve["values"]) == 400
        assert curve["values"][0] is None
        assert curve["rows"][-1] == 6000


def test_a_forest_is_compared_and_tells_how_well_it_found_labels(models, tmp_path):
    records = make_records("forest", "<b>other</b>", labels=["<i>yes</i>", "no"])
    page = report(models["forest"], records, tmp_path / "page.html").read_text(encoding="utf-8")
    assert page.index("DMT forest (driftree)") < page.index("&lt;b&gt;other&lt;/b&gt;")
    assert '<th scope="row">&lt;i&gt;yes&lt;/i&gt;</th>' in page
    assert "<b>other" not in page
    assert "Always predicting the most frequent label so far has an accuracy of " in page
    plain = report(models["forest"], path=tmp_path / "page.html").read_text(encoding="utf-8")
    assert "How well" not in plain


def test_large_run_is_small_file(reports):
    assert len(read_data(reports["large"])["events"]) == 1000
    assert 200_000 < reports["large"].stat().st_size < 3_000_000


def test_labels_and_long_names_are_told_apart(tmp_path):
    names = [f"a very long name of feature {k} with many words in it" for k in "abc"]
    model = DynamicModelTreeClassifier()
    for label in (1, "1"):
        model.learn_one(dict.fromkeys(names, float(label)), label)
    data = read_data(report(model, path=tmp_path / "new" / "folder" / "page.html", title=5))
    assert sorted(data["labels"]) == ["'1'", "1"]
    assert data["inputs"][1:] == names
    assert len(set(data["short_inputs"])) == 4
    assert max(map(len, data["short_inputs"])) <= 13


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"records": "page.html"}, "write path='page.html'"),
        ({"records": Path("page.html")}, "write path="),
        ({"drifts": 2000}, r"got 2000: write \[2000\]"),
    ],
)
def test_what_is_no_record_and_no_list_is_told(tmp_path, models, parameters, message):
    with pytest.raises(TypeError, match=message):
        report(models["whole"], **{"path": tmp_path / "none.html"} | parameters)
    assert not list(tmp_path.iterdir())


def test_other_models_are_told(tmp_path):
    with pytest.raises(TypeError, match="of a DynamicModelTreeClassifier"):
        report(FIMTDDClassifier(), path=tmp_path / "none.html")


def test_unfitted_model_is_told(tmp_path):
    with pytest.raises(NotFittedError):
        report(DynamicModelTreeClassifier(), path=tmp_path / "none.html")
    assert not list(tmp_path.iterdir())


# ---------------------------------------------------------------------- names of all sorts
TURNED = "name \u202eevil\u2066"


def test_directions_of_writing_cannot_turn_a_sentence(tmp_path):
    rng = np.random.default_rng(1)
    X = {TURNED: rng.uniform(-1, 1, 3000), "b\x7f0\x7f": rng.uniform(-1, 1, 3000)}
    y = np.where((X[TURNED] > 0) ^ (X["b\x7f0\x7f"] > 0), "\u202eyes", "n\x01o")
    model = DynamicModelTreeClassifier()
    model.learn_many(X, y)
    assert model.events_
    path = report(model, path=tmp_path / "turned.html", title=TURNED, settings={TURNED: TURNED})
    text, data = path.read_text(encoding="utf-8"), read_data(path)
    assert not set("\u202e\u2066\x01") & set(text)
    assert data["labels"] == ["n\\x01o", "\\u202eyes"]
    assert set(data["names"]) <= {"name \\u202eevil\\u2066", "b\\x7f0\\x7f"}
    assert data["inputs"][2] == "b\\x7f0\\x7f"
    assert data["run"] == [["name \\u202eevil\\u2066"] * 2]


def test_page_is_small_whatever_the_names(tmp_path):
    """1,000 changes, 50 leaves, and names of 150 letters outside of ASCII."""
    model = learn_much(n_leaves=50, name="дохода клиента за прошлый год, в рублях " * 4)
    assert len(max(model._tree.history.at(40).path(40), key=str).feature) > 150
    size = report(model, path=tmp_path / "long.html").stat().st_size
    assert size < 3_000_000


def test_halves_of_characters_and_other_scripts_are_json():
    text = "дом\ud800\u2028<&>😀"
    packed = to_json([text])
    assert packed == '["дом\\ud800\\u2028\\u003c\\u0026\\u003e😀"]'
    assert json.loads(packed) == [text]


@pytest.mark.parametrize(
    ("drifts", "expected"),
    [
        ([300, np.int64(400), 500.0], [[300, 300], [400, 400], [500, 500]]),
        ([(100, 200), [300, 400], np.array([500, 600])], [[100, 200], [300, 400], [500, 600]]),
        ([2000, (900, 3000), (1000, 1001)], [[900, 1000]]),
    ],
)
def test_drifts_may_be_rows_and_spans_of_any_kind(tmp_path, drifts, expected):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(1000, 2))
    model = DynamicModelTreeClassifier().partial_fit(X, X[:, 0] > 0)
    path = report(model, path=tmp_path / "drifts.html", drifts=drifts)
    assert read_data(path)["drifts"] == expected


@pytest.mark.parametrize("drift", ["300", 300.5, (1, 2, 3), float("nan"), None])
def test_other_drifts_are_refused(drift):
    with pytest.raises(ValueError, match="a drift must be a row, or a pair"):
        drift_spans([drift], 1000)


def test_run_is_told_or_missed(models, tmp_path):
    told = report(models["whole"], path=tmp_path / "a.html", settings={"rows per batch": 50})
    assert read_data(told)["run"] == [["rows per batch", "50"]]
    assert read_data(report(models["whole"], path=tmp_path / "b.html"))["run"] == []


def test_splits_are_inner_nodes_and_scores_are_rounded_once(models, reports):
    data = read_data(reports["whole"])
    headline = {row["name"]: row for row in data["headline"]}
    assert headline["splits"]["value"] == str(models["whole"].n_nodes_ // 2)
    assert headline["F1"]["value"] == data["comparison"][0]["f1"][0]
    assert headline["F1"]["more"] == data["comparison"][0]["f1"][1]
    folded = {row["name"]: row for row in read_data(reports["folded"])["headline"]}
    assert folded["changes"]["value"] == "20+"


def test_new_leaves_have_no_shares_of_their_own(tmp_path):
    model = DynamicModelTreeClassifier(**quick.of_setting("measured"))
    rng = np.random.default_rng(1)
    for a, b in rng.normal(size=(5000, 2)).tolist():
        model.learn_one({"a": a, "b": b}, (a > 0) ^ (b > 0))
        if model.events_:
            break
    data = read_data(report(model, path=tmp_path / "new.html"))
    assert model.events_[-1].n_rows == model.n_rows_seen_
    assert [(leaf["is_new"], leaf["share"], leaf["rows"]) for leaf in data["leaves"]] == [
        (True, None, 0.0)
    ] * 2


def test_labels_that_a_leaf_never_saw_have_no_weights():
    assert _telling({"a": 0.0, "b": 1.0, "c": 0.0}, ["a", "b", "c"]) == ["b"]
    assert _telling({"a": 1.0, "b": 0.0}, ["b"]) == ["b"]  # of two, one speaks about both


def test_a_report_on_numbers_has_means_and_formulas_instead_of_labels(models, reports):
    data, rules = read_data(reports["numbers"]), models["numbers"].rules()
    assert (data["labels"], data["number"], data["metric"]) == ([], "y", "MAE")
    for leaf, rule in zip(data["leaves"], rules, strict=True):
        assert leaf["probabilities"] == []
        assert leaf["mean"] == pytest.approx(rule.mean, rel=1e-6)
        assert leaf["error"] == pytest.approx(rule.error, rel=1e-4)
        assert leaf["mean_text"] == write_number(rule.mean, rule.unit)
        assert leaf["formula"].startswith("y = ")
        assert not leaf["is_new"]
        assert {label for label, _, _ in leaf["weights"]} == {1}
    headline = {row["name"]: row for row in data["headline"]}
    assert "labels" not in headline
    assert headline["mean prediction"]["more"].startswith("error about ")
    assert {row["name"] for row in data["settings"]} >= {"loss", "follow_target"}
    words = " ".join([data["tree_key"], data["loss_words"], data["lead"], data["time_words"]])
    assert "label" not in words
    with pytest.raises(ValueError, match="the records have no MAE"):
        report(models["numbers"], make_records("dmt"), "unwritten.html")
    assert not Path("unwritten.html").exists()
