"""Programs that cannot work say why: as a log line, and as the error of every call that waits (issue 25.24)."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
import trio
from kafka_share_proxy.client.consumer import Consumer
from kafka_share_proxy.client.opening import open_consumer
from kafka_share_proxy.client.share_opening import open_share_consumer
from kafka_share_proxy.consumer.events import BrokerRefused, CallTimedOut, ConsumerError
from kafka_share_proxy.localkafka.cluster import Cluster

Fresh = Callable[[str], str]
LIMIT_S = 1.0
ABSENT = ("absent", 0)


@pytest.fixture
def dead_port() -> Iterator[str]:
    """Yield the address of a port that is bound and not listened on."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{bound.getsockname()[1]}"


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Write nothing to stderr."""


@pytest.fixture
def web_server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()


async def every_call_ends(consumer: Consumer, *words: str) -> None:
    """Make all calls that wait for brokers at the same time. Check that each times out with these words."""
    calls: list[Callable[[], Any]] = [
        lambda: consumer.end_offsets([ABSENT]),
        lambda: consumer.beginning_offsets([ABSENT]),
        lambda: consumer.offsets_for_times({ABSENT: 0}),
        lambda: consumer.committed([ABSENT]),
        lambda: consumer.commit({ABSENT: 1}),
        lambda: consumer.position(ABSENT),
    ]
    ended = 0

    async def ends(call: Callable[[], Any]) -> None:
        nonlocal ended
        with pytest.raises(CallTimedOut) as caught:
            await call()
        assert f"no result within {LIMIT_S:g} s" in str(caught.value)
        assert all(word in str(caught.value) for word in words), caught.value
        ended += 1

    with trio.fail_after(LIMIT_S + 20):
        async with trio.open_nursery() as nursery:
            for each in calls:
                nursery.start_soon(ends, each)
    assert ended == len(calls)


def unreachable(bootstrap: str, **options: Any) -> Any:
    return open_consumer(bootstrap, group="g", partitions=[ABSENT], api_timeout_s=LIMIT_S, **options)


async def test_a_dead_port(dead_port: str, caplog: pytest.LogCaptureFixture) -> None:
    async with unreachable(dead_port) as consumer:
        await every_call_ends(consumer, dead_port, "Connection refused", "Check the address in bootstrap=")
    assert f"{dead_port}: Connection refused" in caplog.text
    assert sum("g': cannot use" in each.getMessage() for each in caplog.records) == 1, "rate limited"
    assert "not closed: leaving the group: no result within 1 s" in caplog.text, "the commit is still waiting"


async def test_a_web_server(web_server: str, caplog: pytest.LogCaptureFixture) -> None:
    async with unreachable(web_server) as consumer:
        await every_call_ends(consumer, web_server, "HTTP")
    assert "This is a web server" in caplog.text


async def test_an_unknown_host(caplog: pytest.LogCaptureFixture) -> None:
    async with unreachable("absent.invalid:9092") as consumer:
        await every_call_ends(consumer, "absent.invalid:9092")
    assert "Check the host name" in caplog.text


async def test_a_share_consumer_logs_the_same(dead_port: str, caplog: pytest.LogCaptureFixture) -> None:
    async with open_share_consumer(dead_port, group="g", topics=["a"], api_timeout_s=LIMIT_S) as consumer:
        assert await consumer.poll(0.3) == []
    assert f"{dead_port}: Connection refused" in caplog.text


@pytest.mark.broker
async def test_tls_to_a_port_without_tls(kafka_43: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    async with unreachable(kafka_43.bootstrap, tls=ssl.create_default_context()) as consumer:
        await every_call_ends(consumer, kafka_43.bootstrap, "TLS")
    assert "Check whether this port speaks TLS; without TLS leave tls= out" in caplog.text


@pytest.mark.broker
async def test_credentials_at_a_listener_without_sasl_are_refused(kafka_43: Cluster, fresh: Fresh) -> None:
    for mechanism in ("PLAIN", "SCRAM-SHA-256"):
        login = {"sasl": (mechanism, "alice", "secret"), "api_timeout_s": 20.0}
        async with open_consumer(kafka_43.bootstrap, group=fresh("group"), topics=["a"], **login) as consumer:
            for call in (lambda: consumer.poll(10), lambda: consumer.end_offsets([ABSENT]), consumer.poll):
                with trio.fail_after(10), pytest.raises(ConsumerError, match="has no SASL at this port"):
                    await call()
            assert consumer.assignment == frozenset()
        async with open_share_consumer(kafka_43.bootstrap, group=fresh("group"), topics=["a"], **login) as sharing:
            with trio.fail_after(10), pytest.raises(ConsumerError, match="has no SASL at this port"):
                await sharing.poll(10)


@pytest.mark.broker
async def test_a_topic_that_does_not_exist(kafka_43: Cluster, fresh: Fresh, caplog: pytest.LogCaptureFixture) -> None:
    topic = fresh("absent")
    options = {"group": fresh("group"), "api_timeout_s": LIMIT_S}
    async with open_consumer(kafka_43.bootstrap, topics=[topic], **options) as consumer:
        with trio.move_on_after(30):
            while topic not in caplog.text:
                await consumer.poll(0.2)
        with pytest.raises(CallTimedOut, match=f"topic '{topic}' does not exist: UNKNOWN_TOPIC_OR_PARTITION"):
            await consumer.end_offsets([(topic, 0)])
    assert "Check its name" in caplog.text


@pytest.mark.broker
async def test_a_partition_that_does_not_exist(kafka_43: Cluster, fresh: Fresh) -> None:
    consumer = open_consumer(
        kafka_43.bootstrap, group=fresh("group"), partitions=[("__consumer_offsets", 999)], api_timeout_s=LIMIT_S
    )
    async with consumer as reader:
        await reader.poll(0.1)
        with pytest.raises(CallTimedOut, match="topic '__consumer_offsets' has partitions 0 to "):
            await reader.end_offsets([("__consumer_offsets", 999)])
        with pytest.raises(CallTimedOut, match="partitions 0 to "):
            await reader.position(("__consumer_offsets", 999))
        with pytest.raises(BrokerRefused, match="OffsetCommit of __consumer_offsets-999: UNKNOWN_TOPIC_OR_PARTITION"):
            await reader.commit({("__consumer_offsets", 999): 1})
        assert await reader.end_offsets([("__consumer_offsets", 0)]), "other calls go on"
