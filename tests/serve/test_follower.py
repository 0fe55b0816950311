"""The follower: a server that reads takes over whole models only, and keeps what it has."""

import os
import threading

import pytest

from driftree import DynamicModelTreeRegressor
from driftree.serve.app import make_app
from driftree.serve.recovery import Follower, open_model
from driftree.serve.requests import Limits
from serving import ask, draw_batches, learn_offline, to_bytes


@pytest.fixture
def followed(tmp_path):
    """A file, and a follower of it that is not looking by itself."""
    path = tmp_path / "model.dmt"
    learn_offline(draw_batches(1)).save(path)
    writer = open_model(path, read_only=True, limits=Limits(max_features=3)).writer
    return path, Follower(writer, path)


def health(follower):
    return ask(make_app(follower.writer), "GET", "/health").json


def test_it_takes_over_a_file_once(followed):
    path, follower = followed
    follower.look()
    assert not follower.look()
    new = learn_offline(draw_batches(2, seed=2))
    new.save(path)
    assert follower.look()
    assert not follower.look()
    assert to_bytes(follower.writer.model) == to_bytes(new)


def test_a_file_that_was_gone_for_a_while_is_served_as_before(followed):
    path, follower = followed
    follower.look()
    path.rename(path.with_name("aside"))
    follower.look()
    assert health(follower)["status"] == "degraded"
    path.with_name("aside").rename(path)
    assert not follower.look()
    assert health(follower)["status"] == "ok"


def test_it_follows_a_link_that_is_set_anew(followed, tmp_path):
    path, _ = followed
    link = tmp_path / "current.dmt"
    link.symlink_to(path)
    follower = Follower(open_model(link, read_only=True).writer, link)
    follower.look()
    new = learn_offline(draw_batches(2, seed=2))
    new.save(tmp_path / "other.dmt")
    (tmp_path / "next").symlink_to(tmp_path / "other.dmt")
    os.replace(tmp_path / "next", link)
    assert follower.look()
    assert to_bytes(follower.writer.model) == to_bytes(new)


@pytest.mark.parametrize(
    ("spoil", "cause"),
    [
        (lambda path: path.unlink(), "No such file or directory"),
        (lambda path: path.write_bytes(path.read_bytes()[:-7]), "ModelFileError"),
        (lambda path: path.write_text("something else"), "ModelFileError"),
        (lambda path: DynamicModelTreeRegressor().save(path), "ModelFileError"),
        (lambda path: learn_offline(draw_batches(9)).save(path), "ValueError"),  # 4 features
    ],
    ids=["gone", "cut", "no model", "numbers", "too large"],
)
def test_what_it_cannot_serve_changes_nothing_and_is_told(followed, caplog, spoil, cause):
    path, follower = followed
    follower.look()
    before = to_bytes(follower.writer.model)
    spoil(path)
    assert not follower.look()
    assert not follower.look()
    assert len(caplog.records) == 1  # said once
    assert to_bytes(follower.writer.model) == before
    told = health(follower)
    assert told["status"] == "degraded"
    assert cause in told["problem"]
    assert str(path) not in told["problem"]
    learn_offline(draw_batches(1, seed=5)).save(path)
    assert follower.look()
    assert health(follower) == {"status": "ok", "learning": False}


def test_whoever_asks_meanwhile_gets_one_model_or_the_next(followed):
    path, follower = followed
    models = [learn_offline(draw_batches(n, seed=n)) for n in (1, 2)]
    row = {"a": 0.3, "b": -1.0}
    expected = [list(model.predict_proba_one(row).values()) for model in models]
    app, is_over = make_app(follower.writer), threading.Event()
    models[0].save(path)
    follower.look()

    def replace():
        while not is_over.is_set():
            for model in models:
                model.save(path)
                follower.look()

    thread = threading.Thread(target=replace)
    thread.start()
    try:
        for _ in range(100):
            [shares] = ask(app, "POST", "/predict", {"rows": [row]}).json["probabilities"]
            assert shares in expected
    finally:
        is_over.set()
        thread.join()
    assert follower.writer.problem is None
