"""`memory_usage()` says what a process holds, and that stays where it is."""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
BENCHMARKS = ROOT / "benchmarks"
pytestmark = [
    pytest.mark.skipif(not BENCHMARKS.exists(), reason="benchmarks are not in the distribution"),
    pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux"),
]


@pytest.mark.parametrize(
    "case",
    [
        "default, m = 3, 2 classes",
        pytest.param("default, m = 3, 7 classes", marks=pytest.mark.slow),
        "default, m = 50, 7 classes, row by row",
        pytest.param("paper, m = 3, 2 classes, row by row", marks=pytest.mark.slow),
        "paper, m = 50, 2 classes",
        pytest.param("paper, m = 50, 7 classes", marks=pytest.mark.slow),
        "FIMT-DD, m = 50, 2 classes",
    ],
)
def test_memory_usage_is_what_the_process_holds(case):
    command = [sys.executable, str(BENCHMARKS / "memory.py"), "--case", case, "--megabytes", "12"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    figures = json.loads(done.stdout)
    assert figures["usage"] == pytest.approx(figures["resident"], rel=0.1)
    assert figures["arrays"] < figures["usage"]
    if figures["formula"]:
        assert figures["formula"] == pytest.approx(figures["arrays"], rel=0.1)


SOAK = """
import sys, soak
points = soak.soak(sys.argv[1], 60_000, lambda _: None, n_points=10)
rest = [point._replace(resident=point.resident - point.usage) for point in points]
print(soak.growth(rest) / soak.MOST_GROWTH)
"""


@pytest.mark.parametrize("setting", ["default", "paper", "words"])
def test_nothing_but_the_model_grows_with_the_stream(setting):
    command = [sys.executable, "-c", SOAK, setting]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=BENCHMARKS)
    assert float(done.stdout) < 1


def test_a_size_that_grows_is_noticed(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    soak = importlib.import_module("soak")

    def grown(sizes):
        return soak.growth([soak.Point(0, size, 0, 1, 1.0) for size in sizes])

    assert grown([100, 200, 200, 190, 200, 200, 200, 200, 200, 200]) == 0
    assert grown([100, 200, 202, 204, 206, 208, 210, 212, 214, 216]) == pytest.approx(14 / 202)
    assert grown([200, 200, 200, 200, 200, 220, 200, 200, 200, 200]) == pytest.approx(0.1)


@pytest.mark.parametrize("name", ["memory", "small", "soak"])
def test_the_page_has_the_measured_tables(name):
    table = (BENCHMARKS / "results" / "memory" / f"{name}.md").read_text()
    assert table in (ROOT / "docs" / "memory.md").read_text()
