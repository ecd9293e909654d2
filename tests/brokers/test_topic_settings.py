"""Consequences of an internal topic's settings for the records in it."""

from __future__ import annotations

import pytest
from kafka_share_proxy.brokers.topic_settings import TopicSettings

SAFE = {
    "cleanup.policy": "compact",
    "min.insync.replicas": "2",
    "unclean.leader.election.enable": "false",
    "delete.retention.ms": "86400000",
    "retention.ms": "604800000",
    "retention.bytes": "-1",
}
COMMAND = "kafka-configs.sh --bootstrap-server b1:9092 --alter --entity-type topics --entity-name __state --add-config "


def settings(replicas: int = 3, excess_partitions: int = 0, **values: str) -> TopicSettings:
    topic_configs = {name.replace("_", "."): value for name, value in values.items()}
    return TopicSettings(
        topic="__state",
        server="b1:9092",
        values=SAFE | topic_configs,
        replicas=replicas,
        excess_partitions=excess_partitions,
    )


def test_compacted_topic_with_the_proxys_own_settings_is_safe() -> None:
    """`retention.ms` means nothing where the policy is compact."""
    assert (settings().unsafe, settings().risks()) == ("", {})


@pytest.mark.parametrize("policy", ["delete", "compact,delete", "delete,compact", ""])
def test_every_other_policy_is_unsafe_and_the_correcting_command_is_given(policy: str) -> None:
    text = settings(cleanup_policy=policy).unsafe
    assert f"cleanup.policy={policy or '(empty)'} and must have compact" in text
    assert f"{COMMAND}cleanup.policy=compact" in text
    assert "Records that are still in the topic are kept" in text
    assert ("by age (retention.ms=604800000)" in text) is ("delete" in policy)
    assert "retention.bytes" not in text, "it has no limit"


@pytest.mark.parametrize(
    ("risk", "replicas", "values", "words"),
    [
        ("min-insync-replicas", 3, {"min_insync_replicas": "1"}, "on one broker only"),
        ("min-insync-replicas", 2, {"min_insync_replicas": "3"}, "refuse every append"),
        ("unclean-leader-election", 3, {"unclean_leader_election_enable": "true"}, "become leader"),
        ("delete-retention", 3, {"delete_retention_ms": "0"}, "may come back"),
    ],
)
def test_settings_that_put_records_at_risk_are_named_with_the_correcting_command(
    risk: str, replicas: int, values: dict[str, str], words: str
) -> None:
    risks = settings(replicas, **values).risks()
    assert list(risks) == [risk]
    assert words in risks[risk]
    assert COMMAND in risks[risk]


def test_one_replica_in_sync_is_no_separate_risk_with_two_replicas() -> None:
    """The proxy makes such topics where there are two brokers: with 2 a single lost broker would stop appends."""
    assert settings(2, min_insync_replicas="1").risks() == {}


def test_partitions_that_were_added_are_a_risk() -> None:
    assert "10 partitions too many" in settings(excess_partitions=10).risks()["partitions"]


def test_settings_that_may_not_be_read_are_a_risk_and_no_danger() -> None:
    unknown = TopicSettings(topic="__state", server="b1:9092", values={}, unknown="TOPIC_AUTHORIZATION_FAILED")
    assert unknown.unsafe == ""
    assert "DESCRIBE_CONFIGS" in unknown.risks()["settings-unknown"]
