"""Killed with SIGKILL at any moment, or out of room: nothing is lost that was there before."""

import csv
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

DRIVER = Path(__file__).parent / "support" / "killing.py"
# byte by byte; and the report, the plot
PROMISED = {"model.dmt", "records.csv", "labels.csv", "summary.json"}
BY_NATURE = "costs.csv"  # seconds and bytes of a process
OFTEN = ["--batch", "50", "--checkpoint-every", "300", "--on-bad-row", "skip"]


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """A CSV file of 3,000 rows: a concept that changes, text, missing cells, malformed rows."""
    rng = np.random.default_rng(1)
    X = rng.uniform(-1, 1, size=(3000, 3))
    y = np.where(np.arange(3000) < 2000, (X[:, 0] > 0) ^ (X[:, 1] > 0), X[:, 2] > 0)
    path = tmp_path_factory.mktemp("data") / "rows.csv"
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["a", "b", "c", "kind", "label"])
        for i, (a, b, c) in enumerate(X.round(6).tolist()):
            cells = ["?" if i % 397 == 200 else a, "broken" if i % 801 == 100 else b, c]
            writer.writerow([*cells, "xyz"[i % 3], "yes" if y[i] else "no"])
    return path


def drive(**plan):
    done = subprocess.run(
        [sys.executable, str(DRIVER)],
        input=json.dumps(plan),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def files_in(folder):
    return {path.name: path.read_bytes() for path in Path(folder).iterdir() if path.is_file()}


def test_a_process_killed_in_the_middle_of_a_save_leaves_the_old_or_the_new(tmp_path):
    """At every call that a save makes to the system, and at bytes all over the file."""
    whole, *kills = drive(what="saves", folder=str(tmp_path))
    assert whole["left"] == ["checkpoint-000000000300.dmt", "checkpoint-000000000400.dmt", "lock"]
    assert len(kills) > 24
    model = Path(whole["folder"], "model.dmt").read_bytes()
    for kill in kills:
        folder = Path(kill["folder"])
        assert kill["code"] == -signal.SIGKILL, kill
        assert (folder / "model.dmt").read_bytes() == model, kill
        assert sorted(path.name for path in (folder / "kept").iterdir()) == whole["left"], kill


@pytest.mark.parametrize(
    ("n_chains", "plots"),
    [(1, False), pytest.param(12, True, marks=pytest.mark.slow)],
)
def test_a_run_killed_again_and_again_leaves_what_one_that_was_not_leaves(
    rows, tmp_path, n_chains, plots
):
    runs = [
        [str(rows), *OFTEN, "--delay", "120", "--categorical", "c"],
        [str(rows), *OFTEN, "--model", "dmt-paper", "--row-by-row", "--rows", "2100"],
        [str(rows), *OFTEN, "--model", "fimtdd"],
    ]
    chains = drive(
        what="runs", folder=str(tmp_path), runs=runs, chains=n_chains, plots=plots, seed=1
    )
    assert sum(len(chain["killed"]) for chain in chains) > 6 * len(chains)
    for chain in chains:
        whole, killed = (files_in(Path(chain[which], "out")) for which in ("whole", "folder"))
        assert whole.keys() == killed.keys() >= PROMISED
        assert [name for name in whole if whole[name] != killed[name]] == [BY_NATURE], chain
    assert "report.html" in files_in(Path(chains[0]["whole"], "out"))


# ---------------------------------------------------------------------- a full disk
@pytest.fixture
def small_disk(tmp_path):
    """A small file system."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        pytest.skip("only root may mount a file system")
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(folder)]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"nothing can be mounted here ({error})")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize("is_disk", [False, True])
def test_out_of_room_the_run_stops_and_the_last_checkpoint_is_whole(
    rows, tmp_path, request, is_disk
):
    """Either no file may grow beyond some bytes, or the disk is full."""
    disk = request.getfixturevalue("small_disk") if is_disk else tmp_path / "disk"
    told = drive(
        what="room",
        folder=str(tmp_path),
        disk=str(disk),
        options=[str(rows), *OFTEN],
        is_disk=is_disk,
    )
    assert told["code"] == 2
    assert ("No space left" if is_disk else "File too large") in told["words"]
    assert "could not be written to out/checkpoints, that of row" in told["words"]
    advice = "is intact; free some space, then resume with the same command and --resume"
    assert told["words"].endswith(advice)
    *names, _ = told["left"]
    assert all(name.endswith(".dmt") for name in names), "a part of a file was left"
    assert names[-1] == f"checkpoint-{told['position']:012d}.dmt"
    whole, found = files_in(tmp_path / "whole" / "out"), files_in(disk / "out")
    assert [name for name in whole if whole[name] != found[name]] == [BY_NATURE]
