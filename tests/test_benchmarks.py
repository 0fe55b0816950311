"""The benchmark of speed: every learner races, and its figures follow from the seconds it notes."""

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path
from statistics import median

import numpy as np
import pandas as pd
import pytest

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
BASE = ("River HT nba", "rows")
MODES = {
    "driftree default": ["dict", "batch1000"],
    "driftree paper": ["dict", "batch1000"],
    "driftree forest(5)": ["dict", "batch1000"],
    "driftree forest(10)": ["dict", "batch1000"],
    "River HT nba": ["rows"],
    "River HT mc": ["rows"],
    "River HAT": ["rows"],
    "River EFDT": ["rows"],
    "River ARF(10)": ["rows"],
    "River logistic": ["dict", "batch1000"],
    "sklearn SGD": ["batch1000"],
}
if importlib.util.find_spec("capymoa") and shutil.which("java"):
    MODES |= {"CapyMOA HT": ["rows"], "CapyMOA EFDT": ["rows"]}


def test_speed_times_every_learner_and_its_ratios_follow_from_the_seconds(tmp_path):
    files = {"--json": tmp_path / "speed.json", "--plot": tmp_path / "speed.png"}
    options = ["--quick", "--streams", "sea", "--modes", "dict,batch1000", "--blocks", "2"]
    options += [str(part) for pair in files.items() for part in pair]
    command = [sys.executable, str(BENCHMARKS / "speed.py"), *options]
    done = subprocess.run(command, check=True, capture_output=True, text=True)

    table, targets = done.stdout.split("Targets: ")
    assert [name for name in MODES if name not in table] == []
    assert ("CapyMOA is left out" in done.stderr) == ("CapyMOA HT" not in MODES)
    assert files["--plot"].read_bytes().startswith(b"\x89PNG")

    record = json.loads(files["--json"].read_text())
    results = {(result["learner"], result["mode"]): result for result in record["results"]}
    assert list(results) == [(name, mode) for name, modes in MODES.items() for mode in modes]
    speeds = {key: one["block_rows"] / np.array(one["seconds"]) for key, one in results.items()}
    for key, result in results.items():
        ratios = speeds[key] / speeds[BASE]
        expected = {"min": min(ratios), "median": median(ratios), "max": max(ratios)}
        assert result["ratio"] == pytest.approx(expected)
        assert len(ratios) == record["blocks"] == 2
    assert results["River ARF(10)", "rows"]["block_rows"] < results[BASE]["block_rows"] == 1000

    assert {target["stream"] for target in record["targets"]} == {"sea"}
    for target in record["targets"]:
        ratios = speeds[target["learner"], target["mode"]] / speeds[target["rival"], "rows"]
        assert target["ratio"]["median"] == pytest.approx(median(ratios))
        assert f"{target['floor']}" in targets


def test_stream_like_covertype_has_its_columns_and_uneven_classes(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    draw = importlib.import_module("speed_streams").draw_like_covertype
    X, y = (np.concatenate(parts) for parts in zip(*draw(20_500), strict=True))
    assert X.shape == (20_500, 54)
    assert ((X[:, :10] > 0) & (X[:, :10] < 1)).all()
    assert set(np.unique(X[:, 10:])) == {0, 1}
    assert (X[:, 10:14].sum(axis=1) == 1).all()
    assert (X[:, 14:].sum(axis=1) == 1).all()
    shares = np.bincount(y) / len(y)
    assert len(shares) == 7
    assert shares.max() > 0.4
    assert 0.001 < shares.min() < 0.03
    np.testing.assert_array_equal(next(draw(1000))[0], X[:1000])


def test_ensembles_say_that_capymoa_is_missing_and_take_rivers(monkeypatch, capsys):
    monkeypatch.syspath_prepend(BENCHMARKS)
    choose = importlib.import_module("ensembles").choose_learners
    for module in ("capymoa", "capymoa.classifier"):
        monkeypatch.setitem(sys.modules, module, None)
    assert choose(None) == ["tree", "straight", "arf", "srp"]
    assert "CapyMOA is left out: pip install capymoa" in capsys.readouterr().err
    assert choose(["tree", "srp"]) == ["tree", "srp"]
    with pytest.raises(SystemExit, match="pip install capymoa"):
        choose(["tree", "moa-srp"])


def test_ensembles_take_the_better_library_stream_by_stream(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    tabulate = importlib.import_module("ensembles").tabulate
    results = {
        "sea": {"tree": (0.9, 2.0), "arf": (0.7, np.nan), "moa-arf": (0.6, np.nan)},
        "led": {"tree": (0.8, 4.0), "arf": (0.5, np.nan), "moa-arf": (0.8, np.nan)},
    }
    table = tabulate(results, ["tree", "arf", "moa-arf"], "F1")
    cells = {str(column.header): list(column.cells) for column in table.columns}
    assert cells["driftree"] == ["0.900 (2.0)", "0.800 (4.0)", "0.850 (3.0)"]
    assert cells["ARF(10), River"] == ["0.700", "0.500", "0.600"]
    assert cells["ARF(10), the better"] == ["0.700", "0.800", "0.750"]
    assert "SRP(10), the better" not in cells


@pytest.mark.skipif("CapyMOA HT" not in MODES, reason="needs CapyMOA and Java")
def test_ensemble_of_capymoas_learns_numbers_text_and_missing_values(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    ensemble = importlib.import_module("capymoa_peers").Ensemble
    rng = np.random.default_rng(1)
    X = pd.DataFrame({"x": rng.random(400), "text": rng.choice(["a", "b"], 400)})
    X.loc[::50, "x"], X.loc[25::50, "text"] = np.nan, None
    y = np.where((X["x"] > 0.5) == (X["text"] == "a"), "yes", "no").tolist()
    model = ensemble("StreamingRandomPatches", X, y)
    assert model.predict_proba_one({"x": 0.5, "text": "a"}) == {}
    hits = []
    for x, label in zip(X.to_dict("records"), y, strict=True):
        votes = model.predict_proba_one(x)
        hits.append(bool(votes) and max(votes, key=votes.get) == label)
        model.learn_one(x, label)
    assert sum(votes.values()) == pytest.approx(1)
    assert np.mean(hits[200:]) > 0.8


def test_every_edit_of_the_ablations_fits_the_source(monkeypatch):
    """Each stands in its file once: an edit that changes nothing would measure nothing."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    import ablations

    assert len(ablations.ABLATIONS) > 15
    for ablation in ablations.ABLATIONS:
        for edit in ablation.edits:
            text = (BENCHMARKS.parent / "src" / edit.file).read_text(encoding="utf-8")
            assert text.count(edit.old) == 1, f"{ablation.name}: {edit.old!r} in {edit.file}"
            assert edit.new != edit.old


def test_intervals_are_measured_beside_conformal_ones_and_promises_follow():
    options = ["--streams", "piecewise", "--rows", "1500", "--peers", "linear"]
    command = [sys.executable, str(BENCHMARKS / "intervals.py"), *options]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    (row,) = (line for line in done.stdout.splitlines() if "piecewise" in line)
    _, n_rows, coverage, worst, winkler, _, other, *_ = [
        cell.strip() for cell in row.split("│")[1:]
    ]
    assert n_rows == "1,500"
    assert float(coverage) == pytest.approx(0.9, abs=0.03)
    assert float(other) == pytest.approx(0.9, abs=0.03)
    assert float(worst) <= float(coverage)
    assert float(winkler) > 0
    promise = "no 500 consecutive rows below 84 %: " + ("yes" if float(worst) >= 0.84 else "NO")
    assert promise in done.stdout
