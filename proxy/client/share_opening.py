"""`open_share_consumer`: a share consumer for the time of an `async with` block (client/README.md rules 16 to 26)."""

from __future__ import annotations

import ssl
import uuid
from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager
from typing import Any

import trio

from proxy.brokers.own_connection import Connect
from proxy.client.arguments import named_topics
from proxy.client.network_task import NetworkLoop, jitter
from proxy.client.notes import COORDINATOR_STATE, Observe, ignore, on_state
from proxy.client.open_block import OpenBlock
from proxy.client.settings import CLIENT_ID, ConnectionSettings, SaslLogin, checked_options, connection_settings
from proxy.client.share_consumer import OnAcknowledged, ShareConsumer
from proxy.client.share_notes import SHARE_MEMBER_STATE, note_results
from proxy.consumer.share_core import ShareCore
from proxy.consumer.share_holds import AcknowledgementResult
from proxy.consumer.share_options import ShareConsumerOptions


def open_share_consumer(
    bootstrap: str | Iterable[str],
    *,
    group: str,
    topics: Iterable[str] = (),
    on_acknowledged: OnAcknowledged | None = None,
    check_crcs: bool = True,
    client_id: str = CLIENT_ID,
    tls: ssl.SSLContext | bool | None = None,
    sasl: SaslLogin | tuple[str, str, str] | None = None,
    connect: Connect = trio.open_tcp_stream,
    observe: Observe = ignore,
    **options: Any,
) -> AbstractAsyncContextManager[ShareConsumer]:
    """A share consumer (KIP-932) for the time of an `async with` block; at its end the group is left.

    Args:
        bootstrap: `host:port,host:port`, or several of these.
        group: the share group.
        topics: to subscribe to.
        on_acknowledged: is told what became of acknowledgements, within poll, commit, unsubscribe and close.
        check_crcs: compare checksums of record batches.
        client_id: what requests say of the program; quotas and logs of brokers name it.
        tls: True: certificates that the system trusts; or a context of your own.
        sasl: mechanism, user name, password; the password may be what reads it.
        connect: dials (host, port).
        observe: is told of transitions, acknowledgements and renewals, for logs and metrics; must not raise.
        options: fields of ShareConsumerOptions by name, `acknowledgement_mode="explicit"` for one.

    Raises:
        ConfigurationError: settings that cannot work, alone or together; nothing has been sent.
        ValueError: a name that no topic can have.
    """
    checked = checked_options(ShareConsumerOptions, group, options)
    settings = connection_settings(bootstrap, client_id, tls, sasl, connect)
    names = named_topics(topics)

    def make() -> tuple[NetworkLoop[ShareCore], ShareConsumer]:
        network, consumer = _network_and_consumer(checked, settings, check_crcs, on_acknowledged, observe)
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
) -> tuple[NetworkLoop[ShareCore], ShareConsumer]:
    note = note_results(observe)

    def on_result(result: AcknowledgementResult) -> None:
        note(result)
        consumer.came(result)

    core = ShareCore(
        options,
        jitter=jitter,
        member_id=str(uuid.uuid4()),
        check_crcs=check_crcs,
        on_coordinator_state=on_state(COORDINATOR_STATE, observe),
        on_member_state=on_state(SHARE_MEMBER_STATE, observe),
        on_result=on_result,
    )
    network = NetworkLoop(core, settings.bootstrap, settings.connections, observe)
    consumer = ShareConsumer(network, on_acknowledged)
    return network, consumer
