"""Very many keys, in a process that may hold 1 GiB."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "keyed.py"


@pytest.mark.parametrize(
    ("keys", "megabytes"), [("300", "1"), pytest.param("100000", "512", marks=pytest.mark.slow)]
)
def test_many_keys_fit(keys, megabytes):
    options = ["memory", "--print", "--rows", "2", "--keys", keys, "--megabytes", megabytes]
    command = [sys.executable, str(SCRIPT), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr  # which says how much was resident
    assert f"{int(keys) * 2:,} rows" in done.stdout
