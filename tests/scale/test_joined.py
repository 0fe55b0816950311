"""What becomes of a message: rows, labels, and what does not fit."""

import datetime as dt
import json

import pytest

from driftree import (
    DynamicModelForestClassifier,
    DynamicModelTreeClassifier,
    DynamicModelTreeRegressor,
    FIMTDDClassifier,
)
from driftree.scale.joined import JoinedStream, Message


class Feed:
    """Hands messages to a stream, one per second."""

    def __init__(self, model=None, **parameters):
        self.stream = JoinedStream(model or DynamicModelTreeClassifier(), **parameters)
        self.offset = 0

    def __call__(self, value, *, key=None, seconds=1, only_labels=False):
        self.offset += seconds
        body = value if isinstance(value, bytes) or value is None else json.dumps(value).encode()
        message = Message("rows", 0, self.offset, 1000 * self.offset, key, body)
        return self.stream.take(message, only_labels=only_labels)

    def reasons(self, value, **more):
        return [reply.data["reason"] for reply in self(value, **more) if reply.kind == "dead"]


def test_a_label_may_come_with_its_row_or_after_it_or_before_it():
    feed = Feed()
    for i, parts in enumerate(
        [
            [{"x": 1, "label": "a"}],
            [{"id": 1, "x": 2}, {"id": 1, "label": "b"}],
            [{"id": 2, "label": "a"}, {"id": 2, "x": 3}],
        ]
    ):
        for part in parts:
            feed(part)
        assert feed.stream.counts["learnt"] == feed.stream.version == i + 1
    assert not feed.stream.waiting
    assert not feed.stream.early


def test_times_are_text_where_the_model_knows_their_parts():
    model = DynamicModelTreeClassifier()
    for day in range(1, 29):
        model.learn_one({"ordered": dt.date(2024, 1, day)}, day % 7 == 0)
    feed = Feed(model)
    [reply] = feed({"id": 1, "ordered": "2024-02-04"})
    assert reply.data["prediction"] == model.predict_one({"ordered": dt.date(2024, 2, 4)})
    feed({"id": 1, "label": True})
    assert model.n_rows_seen_ == 29
    assert feed.reasons({"id": 2, "ordered": "soon"}) == [
        "column 'ordered' holds times such as 2024-12-31T23:59, 2024-12-31 or 23:59, got 'soon'"
    ]
    assert "ordered" not in model._fitted.encoder.feature_names


def test_a_prediction_says_leaf_and_version_and_where_its_row_stands():
    feed = Feed()
    [first] = feed({"id": "p", "x": 1})
    assert first.data == {
        "id": "p", "prediction": None, "leaf": None, "model": 0, "partition": 0, "offset": 1
    }  # fmt: skip
    for i in range(40):
        feed({"x": i % 2, "label": bool(i % 2)})
    [last] = feed({"id": "q", "x": 1}, key=b"k")
    model = feed.stream.model
    assert last.key == b"k"
    assert last.data["prediction"] is True
    assert dict(zip(last.data["classes"], last.data["probabilities"], strict=True)) == (
        model.predict_proba_one({"x": 1})
    )
    assert [last.data["leaf"]] == model.apply({"x": [1.0]}).tolist()
    assert last.data["model"] == model.n_rows_seen_ == 40


def test_quality_is_that_of_predictions_made_before():
    feed = Feed(DynamicModelTreeRegressor(follow_target=False))
    errors = []
    for i in range(50):
        [reply] = feed({"id": i, "x": i})
        feed({"id": i, "label": 2.0 * i})
        if reply.data["prediction"] is not None:
            errors.append(abs(reply.data["prediction"] - 2.0 * i))
    assert feed.stream.quality.mean == pytest.approx(sum(errors) / len(errors))
    assert feed.stream.quality.n == 49


def test_the_key_of_a_message_is_the_id_of_a_row_without_one():
    feed = Feed()
    feed({"x": 1}, key=b"k")
    feed({"label": "a"}, key=b"k")
    assert feed.stream.counts["learnt"] == 1


def test_rows_and_labels_wait_no_longer_than_the_window():
    feed = Feed(window=10)
    feed({"id": 1, "x": 1})
    feed({"id": 2, "label": "a"})
    assert feed.reasons({"x": 1}, seconds=9) == []
    assert feed.stream.counts["unlabelled"] == 0
    assert feed.reasons({"x": 1}, seconds=1) == []
    assert feed.stream.counts["unlabelled"] == 1
    assert feed.reasons({"x": 1}) == ["no row with the id 2 arrived within 10 seconds"]
    feed({"id": 1, "label": "a"})
    assert feed.stream.counts["learnt"] == 0


def test_no_more_may_wait_than_there_is_room_for():
    feed = Feed(max_waiting=3)
    for i in range(10):
        feed({"id": i, "x": 1})
    assert list(feed.stream.waiting) == [6, 7, 8, 9]
    assert feed.stream.counts["unlabelled"] == 6


def test_rows_of_words_may_be_empty():
    feed = Feed()
    for words in ("free entry", "ok", "free call now", "lar"):
        feed({**dict.fromkeys(words.split(), 1), "label": "spam" if "free" in words else "ham"})
    feed({"id": 7})
    feed({"id": 7, "label": "ham"})
    assert feed.stream.counts["dead"] == 0
    assert feed.stream.counts["learnt"] == 5


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "the message is empty"),
        (b"\xff", "it is not valid JSON: 'utf-8' codec"),
        (b'{"a": 1, "a": 2}', "it is not valid JSON: duplicate key 'a'"),
        ([1], "it is JSON, but not an object"),
        ({"id": 5}, "the row has no features"),
        (b'{"x": NaN}', "feature 'x': JSON has no nan"),
        ({"x": {"y": 1}}, "feature 'x' must be a number, text, true or false, got an object"),
        ({"id": [1], "x": 1}, "an id must be text or a whole number, got [1]"),
        ({"id": 1.5, "x": 1}, "an id must be text or a whole number, got 1.5"),
        ({"id": 0, "x": 1}, "a row with the id 0 is still waiting for its label"),
        ({"x": "text"}, "column 'x' is numeric, but row 0 holds 'text'"),
        ({"x": 1, "label": [2]}, "label must be a number, text"),
        ({"v" * 1001: 1}, "a feature's name exceeds 1,000 characters"),
    ],
)
def test_what_cannot_be_used_is_told_with_a_reason(value, reason):
    feed = Feed()
    feed({"x": 1, "label": "a"})
    feed({"id": 0, "x": 1})
    before = feed.stream.version, len(feed.stream.waiting)
    [found] = feed.reasons(value)
    assert found.startswith(reason)
    assert (feed.stream.version, len(feed.stream.waiting)) == before
    assert feed.stream.counts["dead"] == 1


def test_labels_that_do_not_fit():
    feed = Feed(DynamicModelTreeRegressor(loss="poisson"))
    feed({"id": 1, "x": 1})
    assert feed.reasons({"label": 3}, only_labels=True) == ["a label needs 'id', which is missing"]
    assert feed.reasons({"id": 1, "label": "a"}) == ["label must be a number, got 'a'"]
    [reason] = feed.reasons({"id": 1, "label": -1})
    assert "must not be negative" in reason
    feed({"id": 9, "label": 3})
    assert feed.reasons({"id": 9, "label": 3}) == [
        "a label with the id 9 is still waiting for its row"
    ]
    feed({"id": 1, "label": 2})  # the row has waited for one that fits
    assert feed.stream.counts["learnt"] == 1


def test_a_schema_says_what_a_row_may_hold():
    feed = Feed(schema={"age": "number", "car": "text", "owner": "boolean"})
    assert feed.reasons({"age": 3.5, "car": None, "owner": True}) == []
    assert feed.reasons({"age": True}) == ["feature 'age' must be a number, got True"]
    assert feed.reasons({"car": 7}) == ["feature 'car' must be a text, got 7"]
    assert feed.reasons({"agee": 7}) == ["feature 'agee' is not in the schema"]
    with pytest.raises(ValueError, match="one of number, text, boolean, got 'float'"):
        Feed(schema={"age": "float"})
    with pytest.raises(ValueError, match="both be the field 'id'"):
        Feed(label_field="id")


def test_changes_of_the_tree_are_told_once():
    feed, told = Feed(DynamicModelTreeClassifier(epsilon=0.5)), []
    for i in range(1500):
        a, b = (i * 37) % 101 / 50 - 1, (i * 53) % 97 / 48 - 1
        replies = feed({"a": a, "b": b, "label": bool((a > 0) ^ (b > 0))})
        told += [reply.data for reply in replies if reply.kind == "event"]
    events = feed.stream.model.events_
    assert [one["why"] for one in told] == [str(event) for event in events] != []


def test_changes_of_the_trees_of_a_forest_are_told_with_their_tree():
    feed, told = Feed(DynamicModelForestClassifier(n_trees=2, epsilon=0.5)), []
    for i in range(800):
        a, b = (i * 37) % 101 / 50 - 1, (i * 53) % 97 / 48 - 1
        replies = feed({"a": a, "b": b, "label": bool((a > 0) ^ (b > 0))})
        told += [reply.data for reply in replies if reply.kind == "event"]
    events = feed.stream.model.events_
    assert [one["why"] for one in told] == [str(event) for event in events] != []
    assert {one["member"] for one in told} == {event.member for event in events}
    [reply] = feed({"a": 0.5, "b": 0.5})
    assert len(reply.data["leaf"]) == 2


def test_a_model_without_events_has_none_to_tell():
    feed = Feed(FIMTDDClassifier(grace_period=20))
    for i in range(200):
        feed({"x": i % 10, "label": i % 10 > 4})
    assert feed.stream.counts["learnt"] == 200


def test_from_its_state_it_continues_as_it_would_have():
    feed, other = Feed(window=50), Feed(window=50)
    for i in range(120):
        feed({"id": i, "x": i % 7, "t": "é\ud800"} if i % 3 else {"id": i + 3, "label": i % 2})
        if i == 60:
            other.stream.restore(feed.stream.model, feed.stream.state())
            assert other.stream == feed.stream
            assert list(other.stream.waiting.items()) == list(feed.stream.waiting.items())
            assert list(other.stream.early.items()) == list(feed.stream.early.items())
