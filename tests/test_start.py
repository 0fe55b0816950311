"""A start takes no more than it must: what is imported when, and nothing is fetched or compiled."""

import gc
import json
import os
import pickle
import subprocess
import sys

import pytest

import driftree
from driftree.streams import sea

HEAVY = {"matplotlib", "narwhals", "numpy", "pandas", "river", "scipy", "sklearn"}
LIST_MODULES = """
import json, runpy, sys
sys.argv = ["driftree", *sys.argv[1:]]
try:
    runpy.run_module("driftree", run_name="__main__")
except SystemExit as end:
    assert end.code == 0
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""
LEARN_SHUT_IN = """
import sys
FORBIDDEN = ("socket.", "subprocess.", "os.exec", "os.fork", "os.posix_spawn", "os.system")

def refuse(event, arguments):
    if event.startswith(FORBIDDEN) or (event == "open" and "w" in str(arguments[1])):
        raise PermissionError(f"{event} {arguments}")

sys.addaudithook(refuse)
import driftree
X, y = next(driftree.streams.sea(300, batch_rows=300))
model = driftree.DynamicModelTreeClassifier().fit(X, y)
model.predict(X)
model.learn_one({"a": 1.0}, 1)
model.predict_one({"a": 1.0})
driftree.FIMTDDClassifier().fit(X, y).predict(X)
print(driftree.export_text(model))
"""

IMPORT_SHUT_IN = """
import importlib, pkgutil, sys

def refuse(event, arguments):
    if event.startswith(("socket.", "urllib.", "http.", "ftplib.", "smtplib.")):
        raise PermissionError(f"{event} {arguments}")

sys.addaudithook(refuse)
import driftree
for name in driftree.__all__:
    getattr(driftree, name)
for module in pkgutil.walk_packages(driftree.__path__, "driftree."):
    if module.name != "driftree.__main__":
        importlib.import_module(module.name)
"""


def run_python(code, *arguments, **options):
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=100, **options
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["--version"],
        *([*command.split(), "--help"] for command in ("demo", "run", "compare", "report")),
        *([*command.split(), "--help"] for command in ("paper", "serve", "versions", "data get")),
    ],
    ids=" ".join,
)
def test_help_imports_nothing_that_learns(arguments):
    run = run_python(LIST_MODULES, *arguments)
    modules = set(json.loads(run.stdout.splitlines()[-1]))
    assert {"driftree", "typer"} <= modules
    assert not modules & HEAVY


def test_import_waits_for_names():
    code = "import driftree, sys; print(set(sys.modules) & set(sys.argv[1:])); driftree.learn"
    assert run_python(code, *HEAVY, "typer", "rich").stdout == "set()\n"


def test_public_names_are_there_and_no_others():
    everything = {}
    exec("from driftree import *", everything)
    assert everything.keys() - {"__builtins__"} == set(driftree.__all__)
    assert {*driftree.__all__, "__version__"} == set(dir(driftree))
    assert driftree.DynamicModelTreeClassifier is driftree.estimators.DynamicModelTreeClassifier
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = driftree.nothing


def test_nothing_is_downloaded_compiled_or_written(tmp_path):
    environment = {**os.environ, "PATH": "", "HOME": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    run = run_python(LEARN_SHUT_IN, env=environment)
    assert (run.returncode, run.stderr) == (0, "")
    assert not list(tmp_path.iterdir())


def test_importing_everything_asks_nobody():
    run = run_python(IMPORT_SHUT_IN)
    assert (run.returncode, run.stderr) == (0, "")


def steps(call):
    """Return the functions that a call calls, in Python and in C, in their order."""
    called = []

    def note(frame, event, argument):
        called.append((event, frame.f_code.co_name, getattr(argument, "__name__", "")))

    gc.disable()  # a collection may come at any call, and runs what others have hung on it
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
        gc.enable()
    return called


@pytest.mark.parametrize("is_loaded", [False, True])
@pytest.mark.parametrize("method", ["predict", "predict_one"])
@pytest.mark.parametrize("learner", ["DynamicModelTreeClassifier", "FIMTDDClassifier"])
def test_the_first_prediction_does_what_the_thousandth_does(learner, method, is_loaded):
    X, y = next(sea(500, batch_rows=500))
    x = X if method == "predict" else dict(zip(("x0", "x1", "x2"), X[0].tolist(), strict=True))
    model = getattr(driftree, learner)().fit(X, y)
    if is_loaded:
        model = pickle.loads(pickle.dumps(model))
    first, *_, last = [steps(lambda: getattr(model, method)(x)) for _ in range(1000)]
    assert first == last
