"""Setup of audit events by the settings."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from kafka_share_proxy.app.observing.audit_file import AuditFile
from kafka_share_proxy.app.observing.audit_topic import AuditTopic
from kafka_share_proxy.app.serving import audit_setup
from kafka_share_proxy.app.settings.config import Config
from kafka_share_proxy.app.settings.config_consistency import mistakes
from kafka_share_proxy.brokers.cluster_client import ClusterClient
from kafka_share_proxy.brokers.cluster_connection import ClusterClientSettings
from kafka_share_proxy.feature.feature import Coverage
from kafka_share_proxy.loop.workers import InlineWorkers

from tests.support import audit_lines
from tests.support.ports import World

WORKERS = InlineWorkers()


def set_up(world: World, **audit: object) -> audit_setup.AuditShipping | None:
    config = Config.model_validate({"audit": audit})
    settings = ClusterClientSettings()
    client = partial(ClusterClient, (), settings)
    return audit_setup.set_up(config, world.services, "proxy:9092", client, WORKERS)


def test_audit_is_off_without_file_and_topic() -> None:
    assert set_up(World()) is None


def test_events_are_written_to_a_file_and_a_topic(tmp_path: Path) -> None:
    shipping = set_up(World(), file=str(tmp_path / "a.jsonl"), topic="audit")
    assert shipping is not None
    assert [type(sink) for sink in shipping.sinks] == [AuditFile, AuditTopic]
    assert shipping.audit.keys.workers is WORKERS


def scopes(shipping: audit_setup.AuditShipping) -> dict[str, str]:
    """Return subject -> its coverage, as the stream reports it."""
    log_events = audit_lines.waiting(shipping.audit.log)
    return {event["subject"]: event["sees"] for event in log_events if event["kind"] == "scope"}


@pytest.mark.parametrize(("samples_per_s", "sees"), [(10, "part"), (0, "none")])
def test_limited_coverage_is_reported_and_logged(samples_per_s: int, sees: str) -> None:
    received = list[tuple[str, str]]()

    def note(_event: str, /, **context: object) -> None:
        received.append((str(context["subject"]), str(context["sees"])))

    config = Config.model_validate({"audit": {"topic": "audit", "key_samples_per_s": samples_per_s}})
    shipping = set_up(World(), topic="audit")
    assert shipping is not None
    coverages = (Coverage("views", "all", "every answer"), Coverage("commits", "part", "not all"))
    audit_setup.report(shipping, coverages, config, note)
    assert scopes(shipping) == {"views": "all", "commits": "part", "key_samples": sees}
    assert received == [("commits", "part"), ("key_samples", sees)]
    audit_setup.report(None, coverages, config, note)
    assert len(received) == 2


def test_each_start_has_its_own_id(tmp_path: Path) -> None:
    """seq begins anew at each start, and (proxy_id, seq) must not come twice."""
    ids = {set_up(World(), topic="audit", proxy_id=name)._proxy_id for name in ("blue", "blue", None)}
    assert len(ids) == 3
    assert sorted(text.rpartition("-")[0] for text in ids) == ["blue", "blue", "proxy:9092"]


def test_topics_are_reported_by_name_or_by_id() -> None:
    world = World()
    topic = world.cluster.create("t")
    shipping = set_up(world, topic="audit")
    assert shipping._names.name(topic.topic_id) == topic.topic_id.hex()
    world.member().fetch(topic)
    assert shipping._names.name(topic.topic_id) == "t"


@pytest.mark.parametrize(("file", "wrong"), [("a.jsonl", False), ("absent/a.jsonl", True)])
def test_the_folder_of_the_file_must_be_there(tmp_path: Path, file: str, wrong: bool) -> None:
    config = Config.model_validate({"audit": {"file": str(tmp_path / file)}})
    assert (("audit", "file") in [key for key, _ in mistakes(config)]) is wrong
