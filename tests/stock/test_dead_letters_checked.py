"""`check` names the topics for dead letters that cannot be written, and why, on 3.9.1 with an authorizer."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from kafka_share_proxy.localkafka.addresses import HOST, free_ports
from kafka_share_proxy.localkafka.cluster import Cluster
from kafka_share_proxy.localkafka.front import installed_command

from tests.stock.test_sasl import ADMIN, ALICE, ALLOW, DESCRIBE, PREFIXED, READ, TOPIC, WRITE
from tests.support.brokers import OLD, USERS, Running
from tests.support.raw import Raw

pytestmark = [pytest.mark.broker, pytest.mark.timeout(300)]

SETTING = "errors.deadletterqueue.topic.name"
CLUSTER, GROUP, TRANSACTIONAL_ID = 4, 3, 5
CREATE, DESCRIBE_CONFIGS = 5, 10
LITERAL = 3
RIGHTS = (
    (TOPIC, "__", PREFIXED, READ), (TOPIC, "__", PREFIXED, WRITE), (TOPIC, "__", PREFIXED, CREATE),
    (TOPIC, "__", PREFIXED, DESCRIBE_CONFIGS), (GROUP, "__proxy", PREFIXED, READ),
    (TRANSACTIONAL_ID, "__proxy", PREFIXED, WRITE), (CLUSTER, "kafka-cluster", LITERAL, DESCRIBE),
    (TOPIC, "dlq.written", PREFIXED, WRITE), (TOPIC, "dlq.written", PREFIXED, DESCRIBE_CONFIGS),
    (TOPIC, "dlq.missing", LITERAL, DESCRIBE), (TOPIC, "dlq.seen", LITERAL, DESCRIBE),
)  # fmt: skip
TOPICS = {
    "dlq.written": {}, "dlq.written.small": {"max.message.bytes": "300"},
    "dlq.written.compacted": {"cleanup.policy": "compact"}, "dlq.seen": {}, "dlq.hidden": {},
}  # fmt: skip
"""Settings of the topics for dead letters. Each group has one of them, and one group has dlq.missing."""


@pytest.fixture(scope="module")
def kafka(running: Running) -> Cluster:
    kafka = running.cluster(OLD, sasl=USERS)
    creations = [
        {"resource_type": kind, "resource_name": name, "resource_pattern_type": pattern, "principal": "User:alice",
         "host": "*", "operation": operation, "permission_type": ALLOW}
        for kind, name, pattern, operation in RIGHTS
    ]  # fmt: skip
    with Raw(kafka.bootstrap, sasl=ADMIN) as raw:
        response = raw.send_request("CreateAcls", 3, creations=creations)
        assert {result.error_code for result in response.results} == {0}
        for name, configs in TOPICS.items():
            raw.create_topic(name, configs=configs)
    return kafka


def checked(kafka: Cluster, folder: Path) -> str:
    """Return the output of `check` with alice as the identity of the proxy, with single spaces."""
    sasl = {"mechanism": "PLAIN", "username": ALICE[0], "password": ALICE[1]}
    upstream = {"bootstrap": kafka.bootstrap, "sasl": sasl}
    settings = {"upstream": upstream, "listen": f"{HOST}:{free_ports(8)[0]}"}
    (folder / "settings.yaml").write_text(yaml.safe_dump(settings))
    command = [*installed_command(), "check", "--config", str(folder / "settings.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return " ".join(done.stdout.split())


def test_topics_that_cannot_be_written_are_named(
    running: Running, kafka: Cluster, fresh: Callable[[str], str], tmp_path: Path
) -> None:
    prefix = fresh("group")
    sasl = {"mechanism": "PLAIN", "username": ALICE[0], "password": ALICE[1]}
    front = running.front(kafka.bootstrap, {"upstream": {"bootstrap": kafka.bootstrap, "sasl": sasl}})
    with Raw(front.bootstrap, sasl=ADMIN) as raw:
        for name in (*TOPICS, "dlq.missing"):
            raw.configure_group(f"{prefix}-{name}", {SETTING: name})
    output = checked(kafka, tmp_path)
    for name, reason in {
        "dlq.missing": "topic dlq.missing does not exist: create it",
        "dlq.written.small": "max.message.bytes of topic dlq.written.small is 300, and a dead letter without key",
        "dlq.written.compacted": "topic dlq.written.compacted is compacted, so that brokers refuse records without",
        "dlq.seen": "the proxy's own identity has no WRITE on topic dlq.seen",
        "dlq.hidden": "the proxy's own identity has no DESCRIBE on topic dlq.hidden; it needs WRITE too",
    }.items():
        assert f"dead letters of group {prefix}-{name}: {reason}" in output
    assert f"dead letters of group {prefix}-dlq.written: " not in output
