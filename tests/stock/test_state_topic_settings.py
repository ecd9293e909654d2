"""Internal topics with settings that lose records: refused by `check` and `serve`, and noticed while a proxy runs."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from kafka_share_proxy.commits import state_records as commits
from kafka_share_proxy.durable.ownership_rules import PARTITIONS
from kafka_share_proxy.durable.state_partitions import state_partition
from kafka_share_proxy.localkafka.addresses import HOST, free_ports
from kafka_share_proxy.localkafka.front import Front, installed_command
from kafka_share_proxy.sharegroups.state import state_records as share_state
from kafka_share_proxy.views import state_records as views
from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.brokers import OLD, Running
from tests.support.raw import Raw, until

pytestmark = pytest.mark.broker

TOPICS = {share_state.TOPIC: PARTITIONS, commits.TOPIC: PARTITIONS, views.TOPIC: views.PARTITIONS}
TOPIC_RESOURCE = 2
RETRIABLE = {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}


class Forwarding(Front):
    """Is started without share groups."""

    def _serves(self) -> bool:
        return self.send_request("/readyz")[0]


def configure(raw: Raw, topic: str, policy: str) -> None:
    assert raw.try_configure(TOPIC_RESOURCE, topic, {"cleanup.policy": policy}).error_code == 0


def commit(front: Front, group: str, topic: str, offset: int, text: str) -> int:
    with Raw(front.bootstrap) as raw:
        partition = {"partition_index": 0, "committed_offset": offset, "committed_metadata": text}
        response = raw.send_request(
            "OffsetCommit", 8, on=raw.on_coordinator(group), group_id=group, generation_id_or_member_epoch=-1,
            member_id="", topics=[{"name": topic, "partitions": [partition]}],
        )  # fmt: skip
    return int(response.topics[0].partitions[0].error_code)


def probe(front: Front, path: str) -> tuple[bool, str]:
    """Return whether it is ready, and the details."""
    is_ready, text = front.send_request(path)
    body = json.loads(text) if text.startswith("{") else {}
    return is_ready, " ".join([*body.get("reasons", []), *body.get("missing", [])])


def test_topics_that_are_not_compacted_are_refused_until_they_are(
    running: Running, tmp_path: Path, fresh: Callable[[str], str]
) -> None:
    kafka = running.cluster(OLD)
    topic, group = fresh("topic"), fresh("group")
    with Raw(kafka.bootstrap) as raw:
        raw.create_topic(topic)
        for name, policy in zip(TOPICS, ("delete", "compact,delete", "delete"), strict=True):
            raw.create_topic(name, TOPICS[name], {"cleanup.policy": policy})

        # check: nothing would be served safely, and what to do about it
        listen = f"{HOST}:{free_ports(8)[0]}"
        done = subprocess.run(
            [*installed_command(), "check", "--upstream", kafka.bootstrap, "--listen", listen],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 1, done.stdout
        for name in TOPICS:
            command = f"--bootstrap-server {kafka.bootstrap} --alter --entity-type topics --entity-name {name}"
            assert f"{command} --add-config cleanup.policy=compact" in done.stdout

        # serve: everything else works
        front = Forwarding(kafka.bootstrap, tmp_path / "proxy")
        front.start()
        try:
            until(lambda: "cleanup.policy=delete" in probe(front, "/readyz/share-groups")[1], "the policy", limit_s=20)
            assert "cleanup.policy=compact,delete" in probe(front, "/readyz/commits")[1]
            assert commit(front, group, topic, 5, "ic/1;7-8") in RETRIABLE
            for name in TOPICS:
                configure(raw, name, "compact")
            until(lambda: probe(front, "/readyz/share-groups")[0], "share groups after the correction", limit_s=30)
            until(lambda: probe(front, "/readyz/commits")[0], "commits after the correction", limit_s=30)
            until(lambda: commit(front, group, topic, 5, "ic/1;7-8") == 0, "a commit after the correction")

            # and at run time
            for name in TOPICS:
                configure(raw, name, "delete")
            until(lambda: "cleanup.policy=delete" in probe(front, "/readyz/commits")[1], "the change", limit_s=30)
            assert commit(front, group, topic, 5, "ic/1;10-11") in RETRIABLE
            until(lambda: "cleanup.policy=delete" in probe(front, "/readyz/views")[1], "that of views", limit_s=30)
            ranges = raw.topic(commits.TOPIC)
            assert ranges is not None
            lost = state_partition(group)
            raw.delete_records(ranges, raw.end_offset(ranges, lost), lost)  # as retention would
            page = front.send_request("/metrics")[1]
            for name in (share_state.TOPIC, commits.TOPIC):
                assert f'ksp_state_topic_unsafe{{topic="{name}"}} 1.0' in page
            for name in TOPICS:
                configure(raw, name, "compact")
            until(lambda: probe(front, "/readyz/commits")[0], "commits after the second correction", limit_s=30)
            until(lambda: commit(front, group, topic, 5, "ic/1;10-11") == 0, "a commit after the second correction")
        finally:
            front.stop()
        with front as again:
            until(lambda: probe(again, "/readyz/commits")[0], "ranges to be loaded")
            with Raw(again.bootstrap) as through:
                response = through.send_request(
                    "OffsetFetch", 7, on=through.on_coordinator(group), group_id=group,
                    topics=[{"name": topic, "partition_indexes": [0]}],
                )  # fmt: skip
            entry = response.topics[0].partitions[0]
            assert (entry.committed_offset, entry.metadata) == (5, "ic/1;7-8,10-11")
