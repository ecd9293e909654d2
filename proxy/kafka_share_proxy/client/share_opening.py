"""`open_share_consumer`: a share consumer for the time of an `async with` block (client/README.md rules 16 to 26)."""

from __future__ import annotations

import ssl
import uuid
from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager
from typing import Unpack

import trio

from kafka_share_proxy.brokers.cluster_connection import Connect
from kafka_share_proxy.client.arguments import named_topics
from kafka_share_proxy.client.bearer_token import OAuthBearer
from kafka_share_proxy.client.client_metrics import ClientMetrics
from kafka_share_proxy.client.deserializers import Deserialize, Deserializers
from kafka_share_proxy.client.network_task import NetworkLoop, jitter
from kafka_share_proxy.client.notes import COORDINATOR_STATE, Observe, ignore, on_state
from kafka_share_proxy.client.open_block import OpenBlock
from kafka_share_proxy.client.settings import (
    CLIENT_ID,
    ConnectionSettings,
    SaslLogin,
    check_arguments,
    checked_options,
    connection_settings,
    optional_function,
)
from kafka_share_proxy.client.share_consumer import OnAcknowledged, ShareConsumer
from kafka_share_proxy.client.share_notes import SHARE_MEMBER_STATE, note_results
from kafka_share_proxy.consumer.option_types import ShareConsumerKeywords
from kafka_share_proxy.consumer.share.share_core import ShareCore
from kafka_share_proxy.consumer.share.share_holds import AcknowledgementResult
from kafka_share_proxy.consumer.share.share_options import ShareConsumerOptions


def open_share_consumer(
    bootstrap: str | Iterable[str],
    *,
    group: str,
    topics: Iterable[str] = (),
    on_acknowledged: OnAcknowledged | None = None,
    check_crcs: bool = True,
    key_deserializer: Deserialize | None = None,
    value_deserializer: Deserialize | None = None,
    client_id: str = CLIENT_ID,
    tls: ssl.SSLContext | bool | None = None,
    sasl: SaslLogin | OAuthBearer | tuple[str, str, str] | None = None,
    connect: Connect = trio.open_tcp_stream,
    observe: Observe = ignore,
    **options: Unpack[ShareConsumerKeywords],
) -> AbstractAsyncContextManager[ShareConsumer]:
    """Open a share consumer (KIP-932) for the time of an `async with` block, which leaves the group at its end.

    Args:
        bootstrap: `host:port,host:port`, or several of these.
        group: the share group.
        topics: topics to subscribe to.
        on_acknowledged: called with the results of acknowledgements, within poll, commit, unsubscribe and close.
        check_crcs: compare checksums of record batches.
        key_deserializer: converts the bytes of keys to objects. It is not called for null.
        value_deserializer: the same for values. Errors are raised as RecordDeserializationError.
        client_id: name of the program in requests, in quotas and in the logs of brokers.
        tls: True to trust the certificates that the system trusts, or an ssl.SSLContext.
        sasl: (mechanism, user name, password), where the password may be a function that returns it, or
            OAuthBearer(token callback).
        connect: async function that dials (host, port) and returns a trio.SocketStream or another Trio stream.
        observe: function that receives transitions, acknowledgements and renewals, for logs and metrics. It must not
            raise.
        options: fields of ShareConsumerOptions by name, for example `acknowledgement_mode="explicit"`.

    Raises:
        ConfigurationError: the settings cannot work, alone or together. Nothing has been sent.
        ValueError: no topic can have a name like this.
    """
    check_arguments(
        {
            "topics": (topics, str | Iterable),
            "on_acknowledged": optional_function(on_acknowledged),
            "check_crcs": (check_crcs, bool),
            "key_deserializer": optional_function(key_deserializer),
            "value_deserializer": optional_function(value_deserializer),
            "observe": (observe, callable),
        }
    )
    checked = checked_options(ShareConsumerOptions, group, options)
    settings = connection_settings(bootstrap, client_id, tls, sasl, connect)
    names = named_topics(topics)

    def make() -> tuple[NetworkLoop[ShareCore], ShareConsumer]:
        network, consumer = _network_and_consumer(
            checked, settings, check_crcs, on_acknowledged, observe, Deserializers(key_deserializer, value_deserializer)
        )
        if names:
            consumer.subscribe(names)
        return network, consumer

    return OpenBlock(make)


def _network_and_consumer(
    options: ShareConsumerOptions,
    settings: ConnectionSettings,
    check_crcs: bool,
    on_acknowledged: OnAcknowledged | None,
    observe: Observe,
    deserializers: Deserializers,
) -> tuple[NetworkLoop[ShareCore], ShareConsumer]:
    metrics = ClientMetrics()
    observe = metrics.observed_by(observe)
    note = note_results(observe)

    def on_result(result: AcknowledgementResult) -> None:
        note(result)
        consumer.on_result(result)

    core = ShareCore(
        options,
        jitter=jitter,
        member_id=str(uuid.uuid4()),
        check_crcs=check_crcs,
        on_coordinator_state=on_state(COORDINATOR_STATE, observe),
        on_member_state=on_state(SHARE_MEMBER_STATE, observe),
        on_result=on_result,
    )
    network = NetworkLoop(core, settings.bootstrap, settings.connections, observe, metrics=metrics)
    consumer = ShareConsumer(network, on_acknowledged, deserializers)
    return network, consumer
