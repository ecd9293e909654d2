"""`open_consumer`: a consumer for the time of an `async with` block (client/README.md rules 16 and 17)."""

from __future__ import annotations

import math
import ssl
import uuid
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any

import trio

from proxy.brokers.own_connection import Connect
from proxy.client.application_poll import POLL_RECORDS_MAX
from proxy.client.arguments import PartitionName
from proxy.client.consumer import Consumer
from proxy.client.network_task import NetworkTask, jitter
from proxy.client.notes import COORDINATOR_STATE, REBALANCE_STATE, Observe, ignore, on_state
from proxy.client.rebalance_listener import RebalanceListener
from proxy.client.settings import CLIENT_ID, ClientSettings, SaslLogin, client_settings
from proxy.consumer.core import ConsumerCore
from proxy.consumer.options import ConfigurationError

CLOSE_S = 30.0
"""For the listener's last words, commits under way, and leaving the group."""
CANCELLED_CLOSE_S = 2.0
"""The same where the block was cancelled: then somebody waits for it to end."""


def open_consumer(
    bootstrap: str | Iterable[str],
    *,
    group: str | None = None,
    topics: Iterable[str] = (),
    pattern: str | None = None,
    partitions: Iterable[PartitionName] = (),
    listener: RebalanceListener | None = None,
    revoke_in_same_poll: bool = False,
    check_crcs: bool = True,
    individual_commits: bool = False,
    max_poll_records: int = POLL_RECORDS_MAX,
    client_id: str = CLIENT_ID,
    tls: ssl.SSLContext | bool | None = None,
    sasl: SaslLogin | tuple[str, str, str] | None = None,
    connect: Connect = trio.open_tcp_stream,
    observe: Observe = ignore,
    **options: Any,
) -> AbstractAsyncContextManager[Consumer]:
    """A consumer for the time of an `async with` block; at its end the group is left.

    Args:
        bootstrap: `host:port,host:port`, or several of these.
        group: the group id; None: nothing can be subscribed to or committed.
        topics: to subscribe to.
        pattern: a regular expression over whole topic names, to subscribe to all that match.
        partitions: to read without sharing them.
        listener: callbacks of rebalances; the lists that poll returns do as well.
        revoke_in_same_poll: give up what is to be revoked within the poll that hears of it, as Kafka's own clients do.
        check_crcs: compare checksums of record batches.
        individual_commits: `done` and `work` note records in any order, and `commit` commits them.
        max_poll_records: that one poll returns at most.
        client_id: what requests say of the program; quotas and logs of brokers name it.
        tls: True: certificates that the system trusts; or a context of your own.
        sasl: mechanism, user name, password; the password may be what reads it.
        connect: dials (host, port).
        observe: is told of transitions, delays and losses, for logs and metrics; must not raise.
        options: fields of ConsumerOptions by name, `auto_offset_reset="earliest"` for one.

    Raises:
        ConfigurationError: settings that cannot work, alone or together; nothing has been sent.
        ValueError: a name that no topic or partition can have.
    """
    settings = client_settings(
        bootstrap, group=group, client_id=client_id, tls=tls, sasl=sasl, connect=connect, options=options
    )
    topics, partitions = list(topics) if not isinstance(topics, str) else topics, list(partitions)
    if sum(map(bool, (topics, pattern is not None, partitions))) > 1:
        raise ConfigurationError("topics, pattern and partitions exclude each other")
    if group is None and (topics or pattern is not None):
        raise ConfigurationError("topics and pattern need a group: say group=, or name partitions")
    if revoke_in_same_poll and settings.options.auto_commit_interval_s is None and listener is None:
        raise ConfigurationError("revoke_in_same_poll without a listener: nobody would hear of it")

    if individual_commits and settings.options.auto_commit_interval_s is not None:
        raise ConfigurationError("individual_commits and automatic commits exclude each other: polled is not done")
    if max_poll_records < 1:
        raise ConfigurationError(f"max_poll_records {max_poll_records}: 1 or more")

    def begin(consumer: Consumer) -> None:
        if topics or pattern is not None:
            consumer.subscribe(topics, pattern=pattern)
        elif partitions:
            consumer.assign(partitions)

    def consumer_of(network: NetworkTask) -> Consumer:
        return Consumer(
            network,
            listener,
            revoke_in_same_poll=revoke_in_same_poll,
            check_crcs=check_crcs,
            individual_commits=individual_commits,
            max_poll_records=max_poll_records,
        )

    return _OpenConsumer(settings, consumer_of, begin, observe)


class _OpenConsumer:
    """Runs the network task beside the block.

    What the block raises comes out as it is, not in a group: the nursery is not told of it. A cancellation is, because
    the nursery may be what was cancelled.
    """

    def __init__(
        self,
        settings: ClientSettings,
        consumer_of: Callable[[NetworkTask], Consumer],
        begin: Callable[[Consumer], None],
        observe: Observe,
    ) -> None:
        self._settings = settings
        self._consumer_of = consumer_of
        self._begin = begin
        self._observe = observe
        self._nursery_of = trio.open_nursery()
        self._network_scope = trio.CancelScope(shield=True)
        """Of the network task: the group is left also where the block was cancelled, and then it ends."""
        self._consumer: Consumer | None = None

    async def __aenter__(self) -> Consumer:
        if self._consumer is not None:
            raise RuntimeError("this consumer was opened before: call open_consumer again")
        core = ConsumerCore(
            self._settings.options,
            jitter=jitter,
            member_id=str(uuid.uuid4()),
            on_coordinator_state=on_state(COORDINATOR_STATE, self._observe),
            on_rebalance_state=on_state(REBALANCE_STATE, self._observe),
        )
        network = NetworkTask(core, self._settings.bootstrap, self._settings.connections, self._observe)
        consumer = self._consumer = self._consumer_of(network)
        self._begin(consumer)  # before anything runs: what is wrong with it has no consequences
        nursery = await self._nursery_of.__aenter__()
        nursery.start_soon(self._run, network, name="network task of a consumer")
        return consumer

    async def _run(self, network: NetworkTask) -> None:
        with self._network_scope:
            await network.run()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        try:
            await self._close()
        finally:
            self._network_scope.cancel()
            if error is None or isinstance(error, Exception):
                await self._nursery_of.__aexit__(None, None, None)
            else:
                await self._nursery_of.__aexit__(kind, error, trace)
        return False

    async def _close(self) -> None:
        cancelled = trio.current_effective_deadline() == -math.inf
        with trio.CancelScope(shield=True) as scope:
            scope.deadline = trio.current_time() + (CANCELLED_CLOSE_S if cancelled else CLOSE_S)
            if self._consumer is not None:
                await self._consumer.close()
