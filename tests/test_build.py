"""The built kernels: what the compiler was told to add against a write past an array, to clear."""

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from driftree.learn import _kernels

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or shutil.which("readelf") is None,
    reason="needs Linux and readelf (Debian/Ubuntu: apt install binutils)",
)


def read_elf(*options):
    words = ["readelf", "--wide", *options, _kernels.__file__]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def symbols():
    found = read_elf("--dyn-syms")
    if "__asan" in found or "__tsan" in found:
        pytest.skip("sanitizers have their own guards")
    return found


def test_the_stack_is_protected(symbols):
    assert "__stack_chk_fail" in symbols


def test_addresses_of_functions_are_read_only(symbols):
    assert "GNU_RELRO" in read_elf("--program-headers")
    assert "BIND_NOW" in read_elf("--dynamic") or "NOW" in read_elf("--dynamic")


def test_the_stack_is_not_executable(symbols):
    stack = next(line for line in read_elf("--program-headers").splitlines() if "GNU_STACK" in line)
    assert "RWE" not in stack


# ---------------------------------------------------------------------- wide registers
COUNTER = next(Path(__file__).parent.rglob("wide_registers.c"))
LEARN_ROWS = """
import numpy as np
from driftree import DynamicModelTreeClassifier, DynamicModelTreeRegressor

X = np.random.default_rng(1).random((2000, 4))
for model, y in (
    (DynamicModelTreeRegressor(), X[:, 0]),
    (DynamicModelTreeClassifier(), X[:, 0] > 0.5),
    (DynamicModelTreeClassifier(), (3 * X[:, 0]).astype(int)),
):
    for x, target in zip(X.tolist(), y.tolist(), strict=True):
        row = dict(enumerate(x))
        model.predict_one(row)
        model.learn_one(row, target)
"""


def can_read_registers():
    """Whether the processor tells which registers are in use, and there is a compiler."""
    cpu = Path("/proc/cpuinfo")
    compiler = shutil.which("cc")
    return platform.machine() == "x86_64" and "xgetbv1" in cpu.read_text() and compiler is not None


def test_kernels_clear_wide_registers(symbols, tmp_path):
    """Otherwise some processors are slow. Counting instructions does not show it."""
    if not can_read_registers():
        pytest.skip("needs an x86-64 processor with xgetbv1, and a C compiler")
    counter = tmp_path / "wide_registers.so"
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", counter, COUNTER, "-ldl"], check=True)
    done = subprocess.run(
        [sys.executable, "-c", LEARN_ROWS],
        env=os.environ | {"LD_PRELOAD": str(counter)},
        capture_output=True,
        text=True,
        check=True,
    )
    n_calls, n_in_use = map(int, done.stdout.split())
    assert n_calls > 5000
    assert n_in_use == 0
