"""The built kernels: what the compiler was told to add against a write past an array."""

import shutil
import subprocess
import sys

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
