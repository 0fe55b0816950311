"""Downloads: whole or not at all, resumed where that is safe, never two at a time."""

import hashlib
import os
import signal
import subprocess
import sys
import time
from importlib import import_module

import numpy as np
import pytest

import loopback
from driftree.streams.download import DownloadError, download

module = import_module("driftree.streams.download")

BODY = np.random.default_rng(1).bytes(100_000)
SHA256 = f"sha256:{hashlib.sha256(BODY).hexdigest()}"
MD5 = f"md5:{hashlib.md5(BODY).hexdigest()}"
CHILD = "import sys; from driftree.streams.download import download; download(*sys.argv[1:3])"


@pytest.fixture
def site(monkeypatch):
    monkeypatch.setattr(module, "BACKOFF_SECONDS", 0.001)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with loopback.serve() as site:
        site.files["/a"] = BODY
        yield site


def start_child(site, path):
    return subprocess.Popen([sys.executable, "-c", CHILD, f"{site.address}/a", str(path)])


def wait_for(happens, seconds=30):
    end = time.monotonic() + seconds
    while not happens():
        assert time.monotonic() < end
        time.sleep(0.01)


def names_in(folder):
    return sorted(path.name for path in folder.iterdir() if path.suffix != ".lock")


@pytest.mark.parametrize("checksum", [None, SHA256, MD5, SHA256.upper().replace("SHA", "sha")])
@pytest.mark.parametrize("is_chunked", [False, True])
def test_a_download_leaves_the_file_and_nothing_else(site, tmp_path, checksum, is_chunked):
    site.is_chunked = is_chunked
    seen = []
    path = download(
        f"{site.address}/a", tmp_path / "a", checksum=checksum, progress=lambda *n: seen.append(n)
    )
    assert path.read_bytes() == BODY
    assert names_in(tmp_path) == ["a"]
    assert seen == sorted(seen)
    assert seen[-1] == (len(BODY), None if is_chunked else len(BODY))
    download(f"{site.address}/a", path, checksum=checksum)
    assert len(site.requests) == 1


@pytest.mark.parametrize("is_chunked", [False, True])
def test_a_cut_connection_is_taken_up_again(site, tmp_path, is_chunked):
    site.is_chunked = is_chunked
    site.cuts = [30_000, 0, 20_000]
    assert download(f"{site.address}/a", tmp_path / "a").read_bytes() == BODY
    assert [start for _, start in site.requests] == [0, 30_000, 30_000, 50_000]


@pytest.mark.parametrize("status", [503, 429])
def test_a_busy_server_is_asked_again(site, tmp_path, status):
    site.statuses = [status, status]
    assert download(f"{site.address}/a", tmp_path / "a").read_bytes() == BODY


def test_a_killed_download_leaves_no_file_and_goes_on(site, tmp_path):
    path, part = tmp_path / "a", tmp_path / "a.part"
    site.pause = 0.05
    child = start_child(site, path)
    wait_for(lambda: part.exists() and part.stat().st_size > 8192)
    child.send_signal(signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL
    assert not path.exists()
    n_bytes = part.stat().st_size
    assert n_bytes < len(BODY)
    site.pause = 0
    assert download(f"{site.address}/a", path).read_bytes() == BODY
    assert site.requests == [("/a", 0), ("/a", n_bytes)]


CHANGES = {
    "no ranges": {"has_ranges": False},
    "changed": {"tag": '"2"', "files": {"/a": BODY[::-1]}},
    "shorter": {"tag": '"2"', "files": {"/a": BODY[:100]}},
    "weak tag": {"tag": 'W/"2"', "files": {"/a": BODY[::-1]}},
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_cannot_be_resumed_starts_anew(site, tmp_path, change):
    site.cuts, site.statuses = [50_000], [200, *[404] * 10]
    with pytest.raises(DownloadError, match="404"):
        download(f"{site.address}/a", tmp_path / "a")
    assert (tmp_path / "a.part").stat().st_size == 50_000
    site.statuses = []
    for name, value in CHANGES[change].items():
        setattr(site, name, value)
    assert download(f"{site.address}/a", tmp_path / "a").read_bytes() == site.files["/a"]
    assert names_in(tmp_path) == ["a"]


@pytest.mark.parametrize("tag", [None, 'W/"1"'])
def test_without_a_mark_of_the_server_only_a_checksum_allows_to_resume(site, tmp_path, tag):
    site.tag = tag
    for checksum, second in ((None, 0), (SHA256, 50_000)):
        site.cuts, site.requests = [50_000], []
        (tmp_path / "a").unlink(missing_ok=True)
        download(f"{site.address}/a", tmp_path / "a", checksum=checksum)
        assert [start for _, start in site.requests] == [0, second]


@pytest.mark.parametrize("body", [BODY, BODY[:100]])
def test_a_beginning_of_another_file_is_noticed_by_the_checksum(site, tmp_path, body):
    checksum = f"sha256:{hashlib.sha256(body).hexdigest()}"
    site.tag, site.cuts, site.statuses = None, [50_000], [200, 404]
    site.files["/a"] = BODY[::-1]
    with pytest.raises(DownloadError, match="404"):
        download(f"{site.address}/a", tmp_path / "a", checksum=checksum)
    site.files["/a"] = body
    assert download(f"{site.address}/a", tmp_path / "a", checksum=checksum).read_bytes() == body
    assert [start for _, start in site.requests] == [0, 50_000, 50_000, 0]


def test_a_wrong_checksum_leaves_nothing(site, tmp_path):
    site.files["/a"] = BODY[::-1]
    with pytest.raises(DownloadError, match=rf"instead of {SHA256}"):
        download(f"{site.address}/a", tmp_path / "a", checksum=SHA256)
    assert names_in(tmp_path) == []


def test_a_file_that_is_there_with_another_checksum_is_replaced(site, tmp_path):
    (tmp_path / "a").write_bytes(b"old")
    assert download(f"{site.address}/a", tmp_path / "a", checksum=SHA256).read_bytes() == BODY


@pytest.mark.parametrize(
    ("prepare", "n_requests", "words"),
    [
        ({"files": {}}, 1, "404"),
        ({"statuses": [500] * 10}, module.ATTEMPTS, "500"),
        ({"cuts": [100] * 20, "has_ranges": False}, 1 + module.ATTEMPTS, "100 of 100,000 bytes"),
    ],
)
def test_it_gives_up_and_says_why(site, tmp_path, prepare, n_requests, words):
    for name, value in prepare.items():
        setattr(site, name, value)
    with pytest.raises(DownloadError, match=rf"{site.address}/a could not be downloaded.*{words}"):
        download(f"{site.address}/a", tmp_path / "a")
    assert len(site.requests) == n_requests
    assert not (tmp_path / "a").exists()


def test_a_silent_server_times_out(site, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "TIMEOUT_SECONDS", 0.05)
    monkeypatch.setattr(module, "ATTEMPTS", 1)
    site.pause, site.has_ranges = 0.5, False
    site.files["/a"] = BODY[:8000]
    with pytest.raises(DownloadError, match="timed out"):
        download(f"{site.address}/a", tmp_path / "a")


def test_an_unknown_host_is_not_tried_again(site, tmp_path, monkeypatch):
    monkeypatch.setattr(module.time, "sleep", lambda _: pytest.fail("it waited"))
    with pytest.raises(DownloadError, match=r"no-such-host\.invalid"):
        download("http://no-such-host.invalid/a", tmp_path / "a")


def test_two_processes_share_one_download(site, tmp_path):
    site.pause = 0.02
    children = [start_child(site, tmp_path / "a") for _ in range(2)]
    assert [child.wait() for child in children] == [0, 0]
    assert (tmp_path / "a").read_bytes() == BODY
    assert site.requests == [("/a", 0)]


@pytest.mark.parametrize("checksum", ["sha1:00", "md5:00", "00"])
def test_a_checksum_has_a_known_form(tmp_path, checksum):
    with pytest.raises(ValueError, match=f"not {checksum}"):
        download("http://127.0.0.1:9/a", tmp_path / "a", checksum=checksum)
    assert os.listdir(tmp_path) == []
