"""Part of `check` about dead letters: whether the topics that groups have for them can be written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from kafka_share_proxy.brokers.cluster_client import ClusterClient
from kafka_share_proxy.brokers.queries import Resource, TopicEntry, about_settings, about_topics
from kafka_share_proxy.sharegroups.dead_letters.group_topic import StoredTarget, TooMuchState, stored_targets
from kafka_share_proxy.sharegroups.dead_letters.letter_records import LetterSource, letter_of
from kafka_share_proxy.sharegroups.dead_letters.target_topics import (
    MESSAGE_BYTES,
    PERMISSION,
    NotWritable,
    check_creation,
    check_permission,
    existing,
)
from kafka_share_proxy.sharegroups.model.dead_letters import DeadLetter
from kafka_share_proxy.sharegroups.model.queue_settings import DEAD_LETTER_COPIES
from kafka_share_proxy.sharegroups.settings import DeadLetters
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode, ProxyError
from kafka_share_proxy.wire.records.records import bytes_max

TOPICS_MAX = 100
"""Maximum number of topics that `check` queries."""
CLEANUP_POLICY, IN_SYNC = "cleanup.policy", "min.insync.replicas"
LONGEST_SOURCE = LetterSource("", "t" * 249, 1 << 30)
"""Topic names have at most 249 characters (org.apache.kafka.common.internals.Topic)."""


class LetterFindings(NamedTuple):
    """Sentences about topics for dead letters."""

    risks: tuple[str, ...] = ()
    """Reasons why dead letters would not be written."""
    remarks: tuple[str, ...] = ()


async def query(own: ClusterClient, settings: DeadLetters) -> LetterFindings:
    """Query the topics that groups have, and those of `share_groups.dead_letters.topics` that are no patterns."""
    remarks: list[str] = []
    targets: dict[str, StoredTarget] = {}
    try:
        targets = await stored_targets(own)
    except TooMuchState as error:
        remarks.append(f"topics for dead letters of groups are not checked: {error}")
    except ProxyError:
        pass  # the topic of the state is reported among its rights
    topics = {each.topic for each in targets.values()}
    topics |= {name for name in settings.topics if not any(sign in name for sign in "*?[")}
    if len(topics) > TOPICS_MAX:
        remarks.append(f"only {TOPICS_MAX} of {len(topics)} topics for dead letters are checked")
    risks = [text for name in sorted(topics)[:TOPICS_MAX] for text in await _of_topic(own, name, targets, settings)]
    return LetterFindings(tuple(risks), tuple(remarks))


async def _of_topic(
    own: ClusterClient, name: str, targets: Mapping[str, StoredTarget], settings: DeadLetters
) -> list[str]:
    groups = sorted(group for group, target in targets.items() if target.topic == name)
    try:
        troubles = list(await _troubles(own, name, {group: targets[group] for group in groups}, settings))
    except NotWritable as error:
        troubles = [str(error)]
    except ProxyError:
        return []  # servers without a response are reported among the others
    of_groups = f"dead letters of group {groups[0]}" if groups else "dead letters"
    more_groups = f" and {len(groups) - 1} other groups" if len(groups) > 1 else ""
    return [f"{of_groups}{more_groups}: {trouble}" for trouble in troubles]


async def _troubles(
    own: ClusterClient, name: str, targets: Mapping[str, StoredTarget], settings: DeadLetters
) -> Iterator[str]:
    """Raises NotWritable, or another ProxyError."""
    response, _ = await own.send_request(ApiKey.METADATA, about_topics([name], operations=True))
    entry = existing(name, response.topics[0])
    if entry is None:
        check_creation(name, settings)
        return iter(())
    request = about_settings(Resource.TOPIC, name, [PERMISSION, MESSAGE_BYTES, CLEANUP_POLICY, IN_SYNC])
    described, _ = await own.send_request(ApiKey.DESCRIBE_CONFIGS, request)
    (result,) = described.results
    configs = result.configs if result.error_code == ErrorCode.NONE else ()
    values = {each.name: each.value for each in configs or () if each.value is not None}
    check_permission(name, entry, values, settings)
    return refusals(name, entry, values, targets)


def refusals(
    name: str, entry: TopicEntry, values: Mapping[str, str], targets: Mapping[str, StoredTarget]
) -> Iterator[str]:
    """Yield the settings of a topic for which brokers refuse dead letters. `targets`: of its groups."""
    size, needed = values.get(MESSAGE_BYTES), _letter_bytes(targets)
    if size is not None and int(size) < needed:
        yield (
            f"{MESSAGE_BYTES} of topic {name} is {size}, and a dead letter without key and value can have {needed} "
            f"bytes: set {MESSAGE_BYTES} to {needed} at least, or to that of the source topics to copy records"
        )
    without_keys = not targets or not all(target.copies_records for target in targets.values())
    if without_keys and "compact" in values.get(CLEANUP_POLICY, ""):
        yield (
            f"topic {name} is compacted, so that brokers refuse records without keys: set {CLEANUP_POLICY}=delete, or "
            f"{DEAD_LETTER_COPIES}=true for the group if all its records have keys"
        )
    copies = min((len(each.replica_nodes) for each in entry.partitions), default=0)
    if int(values.get(IN_SYNC, "1")) > copies:
        yield f"{IN_SYNC} of topic {name} is {values[IN_SYNC]}, and it has {copies} replicas: brokers refuse acks=all"


def _letter_bytes(groups: Mapping[str, object]) -> int:
    """Return the maximum bytes of a batch with one dead letter without key and value."""
    source = replace(LONGEST_SOURCE, group_id=max(groups, key=len, default=""))
    letter = DeadLetter(1 << 62, 1 << 14, is_rejected=False)
    return bytes_max([letter_of(source, letter, None, now_ms=0, copies_headers=False)])
