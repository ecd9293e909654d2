"""`open_consumer`: a consumer for the time of an `async with` block (client/README.md rules 16 and 17)."""

from __future__ import annotations

import ssl
import uuid
from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, Unpack

import trio

from kafka_share_proxy.brokers.cluster_connection import Connect
from kafka_share_proxy.client.application_poll import POLL_RECORDS_MAX
from kafka_share_proxy.client.arguments import PartitionName
from kafka_share_proxy.client.bearer_token import OAuthBearer
from kafka_share_proxy.client.client_metrics import ClientMetrics
from kafka_share_proxy.client.consumer import Consumer
from kafka_share_proxy.client.deserializers import Deserialize, Deserializers
from kafka_share_proxy.client.interceptors import ConsumerInterceptor
from kafka_share_proxy.client.network_task import NetworkTask, jitter
from kafka_share_proxy.client.notes import COORDINATOR_STATE, REBALANCE_STATE, Observe, ignore, on_state
from kafka_share_proxy.client.open_block import OpenBlock
from kafka_share_proxy.client.rebalance_listener import RebalanceListener
from kafka_share_proxy.client.settings import (
    CLIENT_ID,
    ConnectionSettings,
    SaslLogin,
    check_arguments,
    checked_options,
    connection_settings,
    optional_function,
)
from kafka_share_proxy.consumer.core import ConsumerCore
from kafka_share_proxy.consumer.option_types import ConsumerKeywords
from kafka_share_proxy.consumer.options import ConfigurationError, ConsumerOptions


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
    key_deserializer: Deserialize | None = None,
    value_deserializer: Deserialize | None = None,
    individual_commits: bool = False,
    max_poll_records: int = POLL_RECORDS_MAX,
    client_id: str = CLIENT_ID,
    tls: ssl.SSLContext | bool | None = None,
    sasl: SaslLogin | OAuthBearer | tuple[str, str, str] | None = None,
    connect: Connect = trio.open_tcp_stream,
    observe: Observe = ignore,
    interceptors: Iterable[ConsumerInterceptor] = (),
    **options: Unpack[ConsumerKeywords],
) -> AbstractAsyncContextManager[Consumer]:
    """Open a consumer for the time of an `async with` block, which leaves the group at its end.

    Args:
        bootstrap: `host:port,host:port`, or several of these.
        group: group id. Without a group the consumer can neither subscribe nor commit.
        topics: topics to subscribe to.
        pattern: regular expression. The consumer subscribes to all topics whose whole name matches.
        partitions: partitions to read without sharing them with a group.
        listener: callbacks of rebalances. Without one, the result of poll shows them.
        revoke_in_same_poll: release partitions within the poll that reports their revocation, as Kafka's own clients
            do.
        check_crcs: compare checksums of record batches.
        key_deserializer: converts the bytes of keys to objects. It is not called for null.
        value_deserializer: the same for values. Errors are raised as RecordDeserializationError.
        individual_commits: `done` and `work` note records in any order, and `commit` commits them.
        max_poll_records: maximum number of records that one poll returns, per flow where a second one catches up.
        client_id: name of the program in requests, in quotas and in the logs of brokers.
        tls: True to trust the certificates that the system trusts, or an ssl.SSLContext.
        sasl: (mechanism, user name, password), where the password may be a function that returns it, or
            OAuthBearer(token callback).
        connect: async function that dials (host, port) and returns a trio.SocketStream or another Trio stream.
        observe: function that receives notes (notes.py), for logs and metrics. It must not raise.
        interceptors: see records as poll returns them, and offsets as they are committed (KIP-42).
        options: fields of ConsumerOptions by name, for example `auto_offset_reset="earliest"`.

    Raises:
        ConfigurationError: the settings cannot work, alone or together. Nothing has been sent.
        ValueError: no topic or partition can have a name like this.
    """
    check_arguments(
        {
            "topics": (topics, str | Iterable),
            "partitions": (partitions, Iterable),
            "interceptors": (interceptors, Iterable),
            "pattern": (pattern, str | None),
            "listener": (listener, RebalanceListener | None),
            "revoke_in_same_poll": (revoke_in_same_poll, bool),
            "check_crcs": (check_crcs, bool),
            "key_deserializer": optional_function(key_deserializer),
            "value_deserializer": optional_function(value_deserializer),
            "individual_commits": (individual_commits, bool),
            "max_poll_records": (max_poll_records, int),
            "observe": (observe, callable),
        }
    )
    checked = checked_options(ConsumerOptions, group, options)
    settings = connection_settings(bootstrap, client_id, tls, sasl, connect)
    source = _Source.checked(checked, topics, pattern, partitions)
    _check_together(checked, listener, revoke_in_same_poll, individual_commits, max_poll_records)

    def make() -> tuple[NetworkTask, Consumer]:
        network = _network_task(checked, settings, observe)
        consumer = Consumer(
            network,
            listener=listener,
            revoke_in_same_poll=revoke_in_same_poll,
            check_crcs=check_crcs,
            individual_commits=individual_commits,
            max_poll_records=max_poll_records,
            interceptors=tuple(interceptors),
            deserializers=Deserializers(key_deserializer, value_deserializer),
        )
        source.begin(consumer)
        return network, consumer

    return OpenBlock(make)


class _Source(NamedTuple):
    """Topics, pattern or partitions that a consumer reads from its start."""

    topics: Iterable[str]
    pattern: str | None
    partitions: list[PartitionName]

    @classmethod
    def checked(
        cls,
        options: ConsumerOptions,
        topics: Iterable[str],
        pattern: str | None,
        partitions: Iterable[PartitionName],
    ) -> _Source:
        source = cls(topics if isinstance(topics, str) else list(topics), pattern, list(partitions))
        if sum(map(bool, (source.topics, pattern is not None, source.partitions))) > 1:
            raise ConfigurationError("topics, pattern and partitions exclude each other")
        if options.group_id is None and (source.topics or pattern is not None):
            raise ConfigurationError("topics and pattern need a group: say group=, or name partitions")
        return source

    def begin(self, consumer: Consumer) -> None:
        if self.topics or self.pattern is not None:
            consumer.subscribe(self.topics, pattern=self.pattern)
        elif self.partitions:
            consumer.assign(self.partitions)


def _check_together(
    options: ConsumerOptions,
    listener: RebalanceListener | None,
    revoke_in_same_poll: bool,
    individual_commits: bool,
    max_poll_records: int,
) -> None:
    commits_itself = options.auto_commit_interval_s is not None
    if revoke_in_same_poll and not commits_itself and listener is None:
        raise ConfigurationError("revoke_in_same_poll without a listener: no listener would be called")
    if individual_commits and commits_itself:
        raise ConfigurationError("individual_commits and automatic commits exclude each other: polled is not done")
    if max_poll_records < 1:
        raise ConfigurationError(f"max_poll_records {max_poll_records}: 1 or more")


def _network_task(options: ConsumerOptions, settings: ConnectionSettings, observe: Observe) -> NetworkTask:
    metrics = ClientMetrics()
    observe = metrics.observed_by(observe)
    core = ConsumerCore(
        options,
        jitter=jitter,
        member_id=str(uuid.uuid4()),
        on_coordinator_state=on_state(COORDINATOR_STATE, observe),
        on_rebalance_state=on_state(REBALANCE_STATE, observe),
    )
    return NetworkTask(core, settings.bootstrap, settings.connections, observe, metrics=metrics)
