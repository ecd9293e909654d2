"""`check` names topics for dead letters that cannot be written. See also tests/stock/test_dead_letters_checked.py."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from kafka_share_proxy.sharegroups.dead_letters import letter_checks
from kafka_share_proxy.sharegroups.dead_letters.group_topic import StoredTarget, TooMuchState
from kafka_share_proxy.sharegroups.dead_letters.letter_checks import LetterFindings
from kafka_share_proxy.sharegroups.settings import DeadLetters
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.errors import ErrorCode, UpstreamLost

METADATA, DESCRIBE_CONFIGS = 3, 32
WRITE, DESCRIBE = 1 << 4, 1 << 8
COPYING, PLAIN = StoredTarget("failed", copies_records=True), StoredTarget("failed", copies_records=False)


class Own:
    """Client of a cluster with one topic, "failed", if it has settings."""

    def __init__(self, values: dict[str, str] | None, *, replicas: int = 3, bits: int = WRITE | DESCRIBE) -> None:
        self._values, self._replicas, self._bits = values, replicas, bits
        self.code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if values is None else ErrorCode.NONE

    async def send_request(self, key: int, query: Any) -> tuple[Any, None]:
        if key == METADATA:
            kinds = registry.message("MetadataResponse")
            partition = kinds.MetadataResponsePartition(partition_index=0, replica_nodes=list(range(self._replicas)))
            topic = kinds.MetadataResponseTopic(
                name=query.topics[0].name, error_code=self.code, partitions=[partition],
                topic_authorized_operations=self._bits,
            )  # fmt: skip
            return kinds(topics=[topic]), None
        assert key == DESCRIBE_CONFIGS
        kinds = registry.message("DescribeConfigsResponse")
        configs = [
            kinds.DescribeConfigsResourceResult(name=name, value=value) for name, value in (self._values or {}).items()
        ]
        return kinds(results=[kinds.DescribeConfigsResult(configs=configs)]), None


Targets = dict[str, StoredTarget]


def findings(
    own: Own, monkeypatch: pytest.MonkeyPatch, targets: Targets | Exception | None = None, **settings: Any
) -> LetterFindings:
    async def stored(_: Any) -> Targets:
        if isinstance(targets, Exception):
            raise targets
        return {"g": PLAIN} if targets is None else targets

    monkeypatch.setattr(letter_checks, "stored_targets", stored)
    return trio.run(letter_checks.query, own, DeadLetters(**{"topics": ("failed*",)} | settings))


def test_topic_that_can_be_written_is_not_mentioned(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {"max.message.bytes": "1048588", "cleanup.policy": "delete", "min.insync.replicas": "2"}
    assert findings(Own(values), monkeypatch) == LetterFindings()


def test_missing_topic_is_a_risk_unless_it_is_created(monkeypatch: pytest.MonkeyPatch) -> None:
    (risk,) = findings(Own(None), monkeypatch).risks
    assert risk.startswith("dead letters of group g: topic failed does not exist: create it")
    assert findings(Own(None), monkeypatch, auto_create_topics=True, topic_name_prefix="fail").risks == ()


@pytest.mark.parametrize(
    ("bits", "code", "words"),
    [(DESCRIBE, ErrorCode.NONE, "no WRITE"), (WRITE, ErrorCode.TOPIC_AUTHORIZATION_FAILED, "no DESCRIBE")],
)
def test_missing_right_is_a_risk(bits: int, code: ErrorCode, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    own = Own({}, bits=bits)
    own.code = code
    (risk,) = findings(own, monkeypatch).risks
    assert f"the proxy's own identity has {words} on topic failed" in risk


def test_topic_that_allows_no_dead_letters_is_a_risk(monkeypatch: pytest.MonkeyPatch) -> None:
    own = Own({"errors.deadletterqueue.group.enable": "false"})
    (risk,) = findings(own, monkeypatch).risks
    assert "set its errors.deadletterqueue.group.enable=true" in risk
    (risk,) = findings(Own({}), monkeypatch, topics=("dlq.*",)).risks
    assert "no pattern of share_groups.dead_letters.topics matches it" in risk


def test_too_small_a_limit_of_a_batch_is_a_risk(monkeypatch: pytest.MonkeyPatch) -> None:
    (risk,) = findings(Own({"max.message.bytes": "300"}), monkeypatch).risks
    needed = int(risk.partition("can have ")[2].split()[0])
    assert 300 < needed < 1_000
    assert findings(Own({"max.message.bytes": str(needed)}), monkeypatch).risks == ()


def test_compacted_topic_is_a_risk_unless_all_its_groups_copy_records(monkeypatch: pytest.MonkeyPatch) -> None:
    own = Own({"cleanup.policy": "compact,delete"})
    (risk,) = findings(own, monkeypatch, {"a": COPYING, "b": PLAIN}).risks
    assert risk.startswith("dead letters of group a and 1 other groups: topic failed is compacted")
    assert findings(own, monkeypatch, {"a": COPYING}).risks == ()


def test_more_in_sync_replicas_than_replicas_are_a_risk(monkeypatch: pytest.MonkeyPatch) -> None:
    (risk,) = findings(Own({"min.insync.replicas": "2"}, replicas=1), monkeypatch).risks
    assert "min.insync.replicas of topic failed is 2, and it has 1 replicas" in risk


def test_names_among_the_patterns_are_checked_and_patterns_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    (risk,) = findings(Own(None), monkeypatch, {}, topics=("failed", "dlq.*")).risks
    assert risk.startswith("dead letters: topic failed does not exist")


def test_what_is_not_checked_is_a_remark(monkeypatch: pytest.MonkeyPatch) -> None:
    (remark,) = findings(Own({}), monkeypatch, TooMuchState("topic t has 9 offsets")).remarks
    assert remark == "topics for dead letters of groups are not checked: topic t has 9 offsets"
    targets = {f"g{number}": StoredTarget(f"failed{number}", copies_records=False) for number in range(101)}
    result = findings(Own(None), monkeypatch, targets)
    assert result.remarks == ("only 100 of 101 topics for dead letters are checked",)
    assert len(result.risks) == 100


def test_servers_without_a_response_are_not_reported_here(monkeypatch: pytest.MonkeyPatch) -> None:
    assert findings(Own({}), monkeypatch, UpstreamLost("down")) == LetterFindings()
