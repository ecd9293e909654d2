"""OAUTHBEARER with Kafka's own unsecured tokens, on real brokers; and callbacks that fail."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing
from kafka_share_proxy.client.bearer_token import OAuthBearer, bearer_identity, fetch_token
from kafka_share_proxy.client.opening import open_consumer
from kafka_share_proxy.client.share_opening import open_share_consumer
from kafka_share_proxy.consumer.events import CallTimedOut, ConsumerError
from kafka_share_proxy.consumer.options import ConfigurationError
from kafka_share_proxy.consumer.partitions import OffsetAndMetadata
from kafka_share_proxy.localkafka.addresses import HOST
from kafka_share_proxy.localkafka.cluster import Cluster
from kafka_share_proxy.wire.errors import UpstreamLost

from tests.client.test_real_brokers import EARLIEST, create, produce
from tests.support.brokers import NEW, OLD, Running

LIFETIME_S = 1.5
LOGIN_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
Fresh = Callable[[str], str]


def token(subject: str = "alice", *, expires_s: float = 600.0) -> str:
    """An unsecured JWT, which Kafka's default handler takes."""
    now = time.time()
    parts: list[dict[str, Any]] = [{"alg": "none"}, {"sub": subject, "iat": now, "exp": now + expires_s}]
    return ".".join(base64.urlsafe_b64encode(json.dumps(each).encode()).decode().rstrip("=") for each in parts) + "."


@pytest.fixture(scope="module", params=[OLD, NEW])
def oauth(request: pytest.FixtureRequest, running: Running) -> tuple[Cluster, str]:
    """A cluster whose clients need tokens, and where everybody is let in."""
    properties = {
        "listener.security.protocol.map": "CLIENT:SASL_PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "listener.name.client.sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.client.oauthbearer.sasl.jaas.config": (
            f'{LOGIN_MODULE} required unsecuredLoginStringClaim_sub="broker";'
        ),
        "listener.name.client.oauthbearer.connections.max.reauth.ms": str(round(LIFETIME_S * 1000)),
    }
    cluster = running.cluster(request.param, properties=properties)
    return cluster, f"{HOST}:{cluster.nodes[0].internal_port}"


@pytest.mark.broker
@pytest.mark.timeout(180)
async def test_records_are_read_over_several_sessions_each_with_its_own_token(
    oauth: tuple[Cluster, str], fresh: Fresh
) -> None:
    """KIP-368: sessions are renewed on their connections; a plain and an async callback."""
    cluster, internal = oauth

    class Open:
        bootstrap = internal

    inside: Any = Open()
    (partition,) = create(inside, fresh("topic"))
    fetches = 0

    def blocking() -> str:
        nonlocal fetches
        fetches += 1
        return token()

    async def waiting() -> str:
        await trio.sleep(0.01)
        return blocking()

    for callback in (blocking, waiting):
        fetches, dialled = 0, 0

        async def dial(host: str, port: int) -> trio.abc.Stream:
            nonlocal dialled
            dialled += 1
            return await trio.open_tcp_stream(host, port)

        login = OAuthBearer(callback, {"traceId": "7"})
        options = {"group": fresh("group"), "topics": [partition.topic], "connect": dial, **EARLIEST}
        async with open_consumer(cluster.bootstrap, sasl=login, **options) as consumer:
            produce(inside, partition, range(3))
            got, until = 0, trio.current_time() + 3 * LIFETIME_S
            while trio.current_time() < until or not got:
                got += len((await consumer.poll(0.3)).records)
                await consumer.commit()
            assert got
            assert dialled <= 5, "no connection was replaced"
            assert fetches > dialled + 2, "sessions were renewed"
            offset = await consumer.position(partition)
            assert await consumer.committed([partition]) == {partition: OffsetAndMetadata(offset)}


@pytest.mark.broker
@pytest.mark.timeout(120)
async def test_a_token_that_the_broker_refuses_is_an_error(oauth: tuple[Cluster, str], fresh: Fresh) -> None:
    cluster, _ = oauth
    for wrong in (token(expires_s=-60), "no-token"):
        async with open_consumer(
            cluster.bootstrap, group=fresh("group"), topics=["a"], sasl=OAuthBearer(lambda wrong=wrong: wrong)
        ) as consumer:
            with trio.fail_after(20), pytest.raises(ConsumerError, match="refuses the token"):
                await consumer.poll(15)
    async with open_share_consumer(
        cluster.bootstrap, group=fresh("group"), topics=["a"], sasl=OAuthBearer(lambda: "no-token")
    ) as sharing:
        with trio.fail_after(20), pytest.raises(ConsumerError, match="refuses the token"):
            await sharing.poll(15)


@pytest.mark.broker
@pytest.mark.timeout(120)
async def test_a_callback_that_fails_is_logged_and_tried_again(
    oauth: tuple[Cluster, str], fresh: Fresh, caplog: pytest.LogCaptureFixture
) -> None:
    cluster, _ = oauth
    attempts = 0

    def fetch() -> str:
        nonlocal attempts
        attempts += 1
        if attempts <= 3:
            raise ConnectionError("the token endpoint is away")
        return token()

    async with open_consumer(cluster.bootstrap, group=fresh("group"), sasl=OAuthBearer(fetch)) as consumer:
        assert await consumer.list_topics() is not None
    assert "the token callback of sasl= failed: ConnectionError('the token endpoint is away')" in caplog.text

    def never() -> str:
        raise ConnectionError("away")

    async with open_consumer(cluster.bootstrap, sasl=OAuthBearer(never), api_timeout_s=1.0) as consumer:
        with pytest.raises(CallTimedOut, match="the token callback of sasl= failed"):
            await consumer.list_topics()


@pytest.mark.parametrize(("value", "words"), [("", "no token but str"), (b"t", "no token but bytes")])
async def test_a_value_that_is_no_token_is_named(value: Any, words: str) -> None:
    with pytest.raises(UpstreamLost, match=words):
        await fetch_token(lambda: value)


async def test_a_callback_has_a_time_limit(autojump_clock: trio.testing.MockClock) -> None:
    async def fetch() -> str:
        await trio.sleep_forever()
        return ""

    with pytest.raises(UpstreamLost, match="returned nothing within 20 s"):
        await fetch_token(fetch)


def test_mistakes_of_a_login_are_named() -> None:
    wrong: Any = "token"
    with pytest.raises(ConfigurationError, match="the token is a function"):
        bearer_identity(OAuthBearer(wrong))
    with pytest.raises(ConfigurationError, match="extension 'auth'"):
        bearer_identity(OAuthBearer(str, {"auth": "x"}))
    with pytest.raises(ConfigurationError, match="say sasl=OAuthBearer"):
        open_consumer("a:1", sasl=("OAUTHBEARER", "", "token"))
