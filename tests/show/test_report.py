"""The report as a file: what is in it, and that text from data stays data."""

import base64
import json
import re
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from driftree import DynamicModelTreeClassifier, FIMTDDClassifier
from driftree.learn.events import join_path
from driftree.show.report import report
from hostile import LABELS, LEVELS, N_ROWS, SCRIPT, TITLE

pytestmark = pytest.mark.usefixtures("quick_pace")


def read_data(path):
    """The JSON of a report, which must not contain NaN or infinity."""
    text = path.read_text(encoding="utf-8")
    [block] = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    assert not set("<>&\u2028\u2029") & set(block)
    return json.loads(block, parse_constant=lambda word: pytest.fail(f"{word} in the JSON"))


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
    told = read_data(reports["whole"])["events"]
    assert [event["sentence"] for event in told] == [str(event) for event in events]
    for name in ("gain", "threshold", "rows"):
        figures = [getattr(event, name) for event in events]
        np.testing.assert_allclose([event[name] for event in told], figures, rtol=1e-5)
    assert [len(event["removed"]) for event in told] == [event.n_removed for event in events]


def test_leaves_are_the_rules_and_the_last_weights(models, reports):
    model, data = models["whole"], read_data(reports["whole"])
    lives = {(life["node"], life["since"]): life for life in data["lives"]}
    assert data["samples"][-1] == [data["last"]["step"], N_ROWS]
    now = model.tree_at(data["last"]["step"]).nodes
    for leaf, own in zip(data["leaves"], model.leaf_models(), strict=True):
        assert leaf["node"] == own.leaf
        assert leaf["rule"] == (join_path(own.path) or "all rows")
        assert leaf["share"] == pytest.approx(own.share, rel=1e-3)
        assert sum(leaf["probabilities"]) == pytest.approx(1, abs=1e-3)
        life = lives[own.leaf, now[own.leaf].since_step]
        assert life["at"][-1] == len(data["samples"]) - 1
        weights = own.weights[LABELS[1] if LABELS[1] in own.weights else model.classes_[1]]
        assert len(life["pairs"]) == sum(weight != 0 for weight in weights.values())
        for (_, column), series in zip(life["pairs"], life["weights"], strict=True):
            value = series[-1] * data["factors"][column]
            assert value == pytest.approx(weights[data["inputs"][column]], rel=2e-2)


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
