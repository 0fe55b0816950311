"""Kafka: a model that predicts and learns the rows of topics, each exactly once.

Model, offsets and waiting rows are one checkpoint. A process that is killed at any moment resumes
from the last one and reads the later messages again: what it learnt since is lost with it, and what
it sent is sent again. Learning is exactly once, output at least once. Messages of several
partitions are merged by timestamp, as far as possible: a partition that was read to its end is
waited for, but only for a limited time.
"""

from __future__ import annotations

import json
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from driftree.evaluate.checkpoints import Checkpointer
from driftree.learn.storage.atomic import Closing
from driftree.learn.validation import list_names
from driftree.scale.joined import Message

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from driftree.scale.joined import JoinedStream, Reply

FETCHED = 500  # messages at a time
SECONDS = 0.05  # timeout of a fetch
MOST_AHEAD = 10_000  # messages of a partition that may wait for those of another
ANSWER_SECONDS = 30.0  # timeout of the cluster's answers
COMMIT_SECONDS = 10.0  # at most between two checkpoints, if there is anything new


class Partition:
    """A partition: its fetched messages, and how far it was processed."""

    def __init__(self, topic: str, number: int, offset: int, high: int) -> None:
        self.topic = topic
        self.number = number
        self.offset = offset  # of the next message to process
        self.high = high  # where its end was at the start
        self.fetched: deque[Message] = deque()
        self.ended: float | None = None  # when its end was reached,
        self.end = -1  # and where that was
        self.is_paused = False

    @property
    def has_caught_up(self) -> bool:
        """Whether everything up to its end at the start was processed; offsets may have gaps."""
        return self.offset >= self.high or (not self.fetched and self.end >= self.high)


class KafkaStream(Closing):
    """A model over Kafka topics: rows in, predictions out, labels when they arrive.

    Parameters
    ----------
    joined : JoinedStream
        Processes messages; its model is used if there is no checkpoint yet.
    folder : path
        Folder of the checkpoints; only one process at a time may use it.
    brokers : str
        Addresses of the cluster, such as "kafka1:9092,kafka2:9092".
    rows : str
        Topic of the rows, and of labels unless they have a topic of their own.
    labels : str, optional
        Topic of the labels.
    predictions, dead, events : str, optional
        Topics for predictions, for messages that could not be used, with a reason, and for changes
        of the tree, which are in order: all have the key ``tree``.
    every : int, default=10000
        Messages between two checkpoints.
    wait : float, default=0.1
        Seconds that a partition without new messages may delay the others.
    config : dict, optional
        More settings of librdkafka, for consumer and producer.

    Examples
    --------
    >>> from driftree import DynamicModelTreeClassifier
    >>> from driftree.scale.joined import JoinedStream
    >>> def serve(folder, brokers):
    ...     joined = JoinedStream(DynamicModelTreeClassifier(), window=3600)
    ...     topics = {"rows": "loans", "labels": "decisions", "predictions": "scores"}
    ...     with KafkaStream(joined, folder, brokers=brokers, **topics) as stream:
    ...         stream.run()
    """

    def __init__(
        self,
        joined: JoinedStream,
        folder: str | os.PathLike[str],
        *,
        brokers: str,
        rows: str,
        labels: str | None = None,
        predictions: str | None = None,
        dead: str | None = None,
        events: str | None = None,
        every: int = 10_000,
        wait: float = 0.1,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        try:
            import confluent_kafka
        except ModuleNotFoundError:
            raise ImportError(
                "KafkaStream needs the package confluent-kafka, which is not installed: "
                "pip install confluent-kafka"
            ) from None
        self._kafka = confluent_kafka
        topics = [rows] if labels is None else list(dict.fromkeys([rows, labels]))
        for topic in (predictions, dead, events):
            if topic in topics:
                raise ValueError(f"topic {topic!r} is an input, so it cannot be an output, too")
        self.joined = joined
        self.labels = None if labels == rows else labels
        self.outputs = {"prediction": predictions, "dead": dead, "event": events}
        self.wait = wait
        self.done = 0
        self.is_stopped = False
        self._committed = 0
        self._failure: str | None = None
        settings = {"bootstrap.servers": brokers, **(config or {})}
        self._checkpointer = Checkpointer(folder, every=every)
        self._consumer = confluent_kafka.Consumer(
            {
                "group.id": "driftree",
                **settings,
                "auto.offset.reset": "error",  # we keep the offsets: deleted messages are an error
                "enable.auto.commit": False,
                "enable.partition.eof": True,
            }
        )
        self._producer = confluent_kafka.Producer({"enable.idempotence": True, **settings})
        try:
            self._partitions = self._resume(topics)
        except confluent_kafka.KafkaException as error:
            self.close()
            raise OSError(f"the cluster at {brokers} does not answer: {error}") from error
        except BaseException:
            self.close()
            raise

    # ------------------------------------------------------------------ where it was
    def _resume(self, topics: list[str]) -> dict[tuple[str, int], Partition]:
        found = self._checkpointer.resume()
        offsets: dict[tuple[str, int], int] = {}
        if found is not None:
            self.done = self._committed = found.position
            state = found.metrics
            if type(state) is not dict or "offsets" not in state:
                raise ValueError("the checkpoints are not those of a stream: give another folder")
            self.joined.restore(found.model, state)
            offsets = {(topic, number): offset for topic, number, offset in state["offsets"]}
        partitions = {}
        for topic in topics:
            for number in self._numbers_of(topic):
                place = self._kafka.TopicPartition(topic, number)
                low, high = self._consumer.get_watermark_offsets(place, timeout=ANSWER_SECONDS)
                offset = offsets.pop((topic, number), low)
                if not low <= offset <= high:
                    raise ValueError(
                        f"the checkpoint is at offset {offset:,} of partition {number} of topic "
                        f"{topic!r}, which now has {low:,} to {high:,}: messages were deleted; to "
                        "continue without them, start in another folder with the saved model"
                    )
                partitions[topic, number] = Partition(topic, number, offset, high)
        if offsets:
            raise ValueError(
                f"the checkpoint is about other topics or partitions: {list_names(offsets)}; give "
                "the same topics as before, or another folder"
            )
        places = [
            self._kafka.TopicPartition(own.topic, own.number, own.offset)
            for own in partitions.values()
        ]
        self._consumer.assign(places)
        return partitions

    def _numbers_of(self, topic: str) -> list[int]:
        found = self._consumer.list_topics(topic, timeout=ANSWER_SECONDS).topics[topic]
        if found.error is not None or not found.partitions:
            raise ValueError(f"topic {topic!r} cannot be read ({found.error}): create it first")
        return sorted(found.partitions)

    def commit(self) -> None:
        """Flush the output, then write a checkpoint of model, offsets and waiting rows."""
        left = self._producer.flush(ANSWER_SECONDS)
        if left or self._failure is not None:
            reason = self._failure or f"no answer within {ANSWER_SECONDS:g} seconds"
            raise OSError(
                f"predictions could not be sent ({reason}): start again, from the last checkpoint"
            )
        offsets = [[own.topic, own.number, own.offset] for own in self._partitions.values()]
        state = {**self.joined.state(), "offsets": offsets}
        self._checkpointer.commit(self.joined.model, self.done, state)
        self._committed = self.done

    # ------------------------------------------------------------------ running
    def run(self, *, until_end: bool = False) -> None:
        """Predict and learn until `stop` is called or the end is reached.

        Parameters
        ----------
        until_end : bool, default=False
            Whether to stop at what was the end of the topics when this object was made.
        """
        when = time.monotonic()
        while not self.is_stopped:
            if until_end and all(own.has_caught_up for own in self._partitions.values()):
                break
            self._fetch()
            while (first := self._next(until_end=until_end)) is not None:
                self._do(first)
                if self._checkpointer.is_due(self.done):
                    self.commit()
                    when = time.monotonic()
            self._producer.poll(0)
            if self.done > self._committed and time.monotonic() - when > COMMIT_SECONDS:
                self.commit()
                when = time.monotonic()
        self.commit()

    def stop(self) -> None:
        """Let `run` end after the present message, with a checkpoint; for signal handlers."""
        self.is_stopped = True

    def close(self) -> None:
        """Release the folder, and leave the cluster."""
        self._consumer.close()
        self._checkpointer.close()

    @property
    def model(self) -> Any:
        """The present model."""
        return self.joined.model

    # ------------------------------------------------------------------ messages
    def _fetch(self) -> None:
        found: Any
        for found in self._consumer.consume(FETCHED, timeout=SECONDS):
            own = self._partitions[found.topic(), found.partition()]
            error = found.error()
            if error is not None:
                if error.code() != self._kafka.KafkaError._PARTITION_EOF:
                    raise OSError(f"topic {own.topic!r}, partition {own.number}: {error.str()}")
                own.ended, own.end = time.monotonic(), found.offset()
                continue
            own.ended = None
            own.fetched.append(
                Message(
                    own.topic,
                    own.number,
                    found.offset(),
                    max(0, found.timestamp()[1]),
                    found.key(),
                    found.value(),
                )
            )
        self._hold_back()

    def _hold_back(self) -> None:
        """Pause partitions that are far ahead of others."""
        for own in self._partitions.values():
            place = [self._kafka.TopicPartition(own.topic, own.number)]
            if not own.is_paused and len(own.fetched) > MOST_AHEAD:
                self._consumer.pause(place)
                own.is_paused = True
            elif own.is_paused and len(own.fetched) < MOST_AHEAD // 2:
                self._consumer.resume(place)
                own.is_paused = False

    def _next(self, *, until_end: bool) -> Partition | None:
        """Return the partition with the earliest message; None if an earlier one may arrive."""
        ready: list[Partition] = []
        if self.is_stopped:
            return None
        for own in self._partitions.values():
            if until_end and own.has_caught_up:
                continue
            if own.fetched:
                ready.append(own)
            elif own.ended is None or time.monotonic() - own.ended < self.wait:
                return None
        return min(ready, key=_order, default=None)

    def _do(self, own: Partition) -> None:
        message = own.fetched.popleft()
        only_labels = own.topic == self.labels
        for reply in self.joined.take(message, only_labels=only_labels):
            self._send(reply)
        own.offset = message.offset + 1
        self.done += 1

    def _send(self, reply: Reply) -> None:
        topic = self.outputs[reply.kind]
        if topic is None:
            return
        value = json.dumps(reply.data, separators=(",", ":")).encode("ascii")
        while True:
            try:
                self._producer.produce(topic, value, reply.key, on_delivery=self._delivered)
                return
            except BufferError:  # its queue is full
                self._producer.poll(SECONDS)

    def _delivered(self, error: Any, _: Any) -> None:
        if error is not None:
            self._failure = error.str()

    # ------------------------------------------------------------------ figures
    def metrics(self) -> dict[str, float]:
        """Return counts, lag and quality, by their names for Prometheus."""
        joined, quality = self.joined, self.joined.quality
        found: dict[str, float] = {
            f"driftree_stream_{name}_total": count for name, count in joined.counts.items()
        }
        lag = sum(self._lag(own) for own in self._partitions.values())
        return found | {
            "driftree_stream_messages_total": self.done,
            "driftree_stream_lag": lag,
            "driftree_stream_waiting_rows": len(joined.waiting),
            "driftree_stream_waiting_labels": len(joined.early),
            "driftree_stream_quality": quality.mean,
            "driftree_stream_recent_quality": quality.recent,
            "driftree_stream_model_version": joined.version,
        }

    def _lag(self, own: Partition) -> int:
        place = self._kafka.TopicPartition(own.topic, own.number)
        _, high = self._consumer.get_watermark_offsets(place, cached=True)
        return max(0, int(high) - own.offset)


def _order(own: Partition) -> tuple[int, str, int]:
    return own.fetched[0].time, own.topic, own.number
