"""A mock cluster of librdkafka or a real one, topics in it, and a stream that may be killed."""

import json
import os
import random
import signal
import sys
from contextlib import contextmanager

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

QUIET = {"log_level": 0}
REAL = os.environ.get("DRIFTREE_KAFKA")
"""The address of a real broker; what it needs is in DRIFTREE_KAFKA_CONFIG: name=value, ..."""
REAL_CONFIG = QUIET | dict(
    pair.split("=") for pair in os.environ.get("DRIFTREE_KAFKA_CONFIG", "").split()
)


@contextmanager
def cluster():
    """The address of a cluster that lives as long as the block, for this process and others."""
    owner = Producer({"bootstrap.servers": "-", "test.mock.num.brokers": 1, **QUIET})
    [broker] = owner.list_topics(timeout=10).brokers.values()
    yield f"{broker.host}:{broker.port}"
    del owner


def send(brokers, topic, values, *, times=None, partitions=1, keys=None, config=QUIET):
    """Send texts, objects or bytes; the i-th at time i (in seconds) to partition i % partitions."""
    producer = Producer({"bootstrap.servers": brokers, **config})
    for i, value in enumerate(values):
        producer.produce(
            topic,
            value if isinstance(value, bytes) else json.dumps(value).encode(),
            None if keys is None else keys[i],
            partition=i % partitions,
            timestamp=int(1000 * (1 + (i if times is None else times[i]))),
        )
    assert producer.flush(60) == 0


def received(brokers, topic, config=QUIET):
    """All messages of a topic, as objects."""
    consumer = Consumer(
        {
            "bootstrap.servers": brokers,
            "group.id": "test",
            "enable.partition.eof": True,
            **config,
        }
    )
    numbers = list(consumer.list_topics(topic, timeout=10).topics[topic].partitions)
    consumer.assign([TopicPartition(topic, number, 0) for number in numbers])
    found, n_ended = [], 0
    while n_ended < len(numbers):
        for message in consumer.consume(500, timeout=0.1):
            if message.error() is None:
                found.append(json.loads(message.value()))
            else:
                assert message.error().code() == KafkaError._PARTITION_EOF
                n_ended += 1
    consumer.close()
    return found


class Ended(BaseException):
    """The process ends here; in the same process, as good as that can be played."""


def end_at(patch, n, end):
    """Call `end` at the n-th of the points where a process may be killed."""
    from driftree.evaluate import checkpoints
    from driftree.scale import joined, kafka

    seen = 0

    def pass_by(function):
        def passing(*arguments, **more):
            nonlocal seen
            for step in (lambda: None, lambda: function(*arguments, **more)):
                seen += 1
                if seen == n:
                    end()
                found = step()
            return found

        return passing

    for owner, name in (
        (joined.JoinedStream, "take"),
        (joined.JoinedStream, "_learn"),
        (kafka.KafkaStream, "_send"),
        (checkpoints.Checkpointer, "commit"),
        (os, "fsync"),
        (os, "replace"),
    ):
        patch(owner, name, pass_by(getattr(owner, name)))


if __name__ == "__main__":  # the command, killed at a random point
    from driftree.cli import app

    most = int(sys.argv[1])
    if most:
        end_at(
            setattr,
            random.Random(sys.argv[2]).randrange(1, most),
            lambda: os.kill(os.getpid(), signal.SIGKILL),
        )
    app(sys.argv[3:])
