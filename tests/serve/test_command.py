"""`driftree serve` as a command: how it starts, ends, and does not start."""

import http.client
import json
import os
import re
import signal
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from driftree import load
from driftree.cli import app
from driftree.serve import server as server_module
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
    assert open_model(path, read_only=True).writer.sequence == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["missing.dmt"], "missing.dmt does not exist: add --new to start with an empty model"),
        (["there.dmt", "--new"], "there.dmt exists: omit --new"),
        (["there.dmt"], "this is not a model file"),
        (["new.dmt", "--new", "--read-only"], "give only one of them"),
        (["there.dmt", "--param", "max_nodes=7"], "--param is for --new"),
        (["there.dmt", "--categorical", "zip"], "--categorical is for --new"),
        (["new.dmt", "--new", "--param", "max_nodes"], "--param must be name=value"),
        (["new.dmt", "--new", "--param", "nodes=7"], "there is no parameter of dmt 'nodes'"),
        (["new.dmt", "--new", "--param", "max_nodes=0"], "max_nodes must be"),
        (["new.dmt", "--new", "--labels", "yes"], "two labels or more"),
        (["there.dmt", "--follow"], "--follow is for --read-only"),
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


def test_a_new_model_is_made_as_asked(tmp_path, monkeypatch):
    asked = {}
    monkeypatch.setattr(server_module, "serve", lambda path, **options: asked.update(options))
    options = ["--param", "max_nodes=7", "--categorical", "zip, area", "--labels", '0,1,"1"']
    result = CliRunner().invoke(app, ["serve", str(tmp_path / "model.dmt"), "--new", *options])
    assert result.exit_code == 0
    assert asked["limits"].labels == (0, 1, "1")
    made = {name: asked[name] for name in ("task", "categorical", "parameters")}
    recovered = open_model(tmp_path / "model.dmt", new=True, limits=asked["limits"], **made)
    model = recovered.writer.model
    recovered.writer.close()
    os.close(recovered.lock)
    assert (model.max_nodes, model.categorical) == (7, ("zip", "area"))
    assert load(tmp_path / "model.dmt").max_nodes == 7


# ---------------------------------------------------------------------- several processes
def test_another_process_predicts_from_the_model_of_one_that_learns(tmp_path):
    path, batches = tmp_path / "model.dmt", draw_batches(5)
    rows = {"rows": batches[0].rows}
    learn_offline(batches[:1]).save(path)
    writing, reading = ["--snapshot-every", "1"], ["--read-only", "--follow"]
    with serving(path, *writing) as writer, serving(path, *reading) as reader:
        for batch in batches[1:]:
            body = {"rows": batch.rows, "labels": batch.labels, "weights": batch.weights}
            assert request(writer.address, "POST", "/learn", body)[0] == 200
            assert request(reader.address, "POST", "/learn", body)[0] == 403
        begin = time.monotonic()
        while json.loads(request(reader.address, "GET", "/model")[1])["sequence"] < 4:
            assert time.monotonic() - begin < 30
            time.sleep(0.05)
        told = [request(one.address, "POST", "/predict", rows) for one in (writer, reader)]
        assert told[0] == told[1]
        writer.end(signal.SIGKILL)
        assert request(reader.address, "POST", "/predict", rows) == told[1]
        assert reader.end() == (0, "")


def test_the_page_on_deployment_names_options_that_there_are():
    page = (Path(__file__).parents[2] / "docs" / "deploy.md").read_text(encoding="utf-8")
    [unit] = re.findall(r"ExecStart=\S+ (.*)", page)
    [entry] = re.findall(r"ENTRYPOINT (\[.*\])", page)
    commands = [unit.split(), json.loads(entry)[1:]]
    known = get_command(app).commands["serve"]
    options = {name for option in known.params for name in option.opts}
    for command in commands:
        assert command[0] == "serve"
        assert {word for word in command if word.startswith("--")} <= options
    assert "install -d -o driftree /data" in page  # a volume belongs to whom its folder belongs
