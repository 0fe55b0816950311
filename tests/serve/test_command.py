"""`driftree serve` as a command: how it starts, ends, and does not start."""

import http.client
import json
import signal
import sys
from urllib.parse import urlsplit

import pytest
from typer.testing import CliRunner

from driftree import load
from driftree.cli import app
from driftree.serve.recovery import open_model
from serving import draw_batches, learn_offline, serving, to_bytes


def request(address, method, path, body=None, **headers):
    """Return status and body of an answer."""
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=30)
    headers = {"Content-Type": "application/json", **headers}
    try:
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_told_to_stop_it_saves_the_model_and_ends_well(tmp_path):
    path, [batch] = tmp_path / "model.dmt", draw_batches(1)
    with serving(path, "--new") as server:
        body = {"rows": batch.rows, "labels": batch.labels}
        assert request(server.address, "POST", "/learn", body)[0] == 200
        huge = request(server.address, "POST", "/predict", {"rows": [{"a": "x" * 2**22}]})
        assert huge[0] == 413
        assert server.end(signal.SIGTERM) == (0, "")
    assert to_bytes(load(path)) == to_bytes(learn_offline([batch]))
    assert open_model(path, read_only=True).writer.sequence == 0  # the journal is not looked at


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["missing.dmt"], "missing.dmt does not exist: add --new to start with an empty model"),
        (["there.dmt", "--new"], "there.dmt exists: omit --new"),
        (["there.dmt"], "this is no model file"),
        (["new.dmt", "--new", "--read-only"], "give one of them"),
        (["new.dmt", "--new", "--host", "0.0.0.0"], "and needs a token: set DRIFTREE_TOKEN"),
        (["new.dmt", "--new", "--token-file", "short"], "must have 16 or more printable ASCII"),
        (["new.dmt", "--new", "--token-file", "none"], "No such file"),
        (["new.dmt", "--new", "--host", "192.0.2.1", "--token-file", "good"], "Cannot assign"),
    ],
)
def test_what_keeps_it_from_starting_is_said_in_one_line(tmp_path, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DRIFTREE_TOKEN", raising=False)
    (tmp_path / "there.dmt").write_text("something else")
    (tmp_path / "short").write_text("secret\n")
    (tmp_path / "good").write_text("a-token-of-some-length\n")
    result = CliRunner().invoke(app, ["serve", *arguments, "--port", "0"])
    assert result.exit_code == 2
    assert words in result.stderr
    assert result.stderr.count("\n") == 1
    assert not (tmp_path / "new.dmt").exists()


def test_without_its_packages_it_says_what_to_install(tmp_path, monkeypatch):
    for name in [name for name in sys.modules if name.startswith("driftree.serve")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "fastapi", None)
    result = CliRunner().invoke(app, ["serve", str(tmp_path / "model.dmt"), "--new"])
    assert result.exit_code == 2
    assert "pip install fastapi uvicorn" in result.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_told_to_stop_at_its_very_start_it_ends_well(tmp_path, number):
    with serving(tmp_path / "model.dmt", "--new") as server:
        assert server.end(number)[0] == 0
