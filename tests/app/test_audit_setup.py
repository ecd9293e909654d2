"""Audit as the settings want it."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.app import audit_setup
from proxy.app.audit_file import AuditFile
from proxy.app.audit_topic import AuditTopic
from proxy.app.config import Config
from proxy.app.config_consistency import mistakes
from proxy.brokers.own_connection import OwnSettings
from tests.support.ports import World


def set_up(world: World, **audit: object) -> audit_setup.AuditShipping | None:
    config = Config.model_validate({"audit": audit})
    return audit_setup.set_up(config, world.services, "proxy:9092", OwnSettings(), lambda *_, **__: None)


def test_off_without_file_and_topic() -> None:
    """And where the brokers serve share groups."""
    world = World()
    assert set_up(world) is None
    world.services.serve_share = False
    assert set_up(world, topic="audit") is None
    assert (world.services.audit, world.services.writes.audit) == (None, None)


def test_a_file_and_a_topic(tmp_path: Path) -> None:
    world = World()
    shipping = set_up(world, file=str(tmp_path / "a.jsonl"), topic="audit")
    assert [type(sink) for sink in shipping.sinks] == [AuditFile, AuditTopic]
    assert world.services.audit is world.services.writes.audit is shipping.audit


def test_each_start_has_an_id_of_its_own(tmp_path: Path) -> None:
    """seq begins anew at each start, and (proxy_id, seq) must not come twice."""
    ids = {set_up(World(), topic="audit", proxy_id=name)._proxy_id for name in ("blue", "blue", None)}
    assert len(ids) == 3
    assert sorted(text.rpartition("-")[0] for text in ids) == ["blue", "blue", "proxy:9092"]


def test_topics_are_named_or_told_by_id() -> None:
    world = World()
    topic = world.cluster.create("t")
    shipping = set_up(world, topic="audit")
    assert shipping._topic_name(topic.topic_id) == topic.topic_id.hex()
    world.member().fetch(topic)
    assert shipping._topic_name(topic.topic_id) == "t"


@pytest.mark.parametrize(("file", "wrong"), [("a.jsonl", False), ("absent/a.jsonl", True)])
def test_the_folder_of_the_file_must_be_there(tmp_path: Path, file: str, wrong: bool) -> None:
    config = Config.model_validate({"audit": {"file": str(tmp_path / file)}})
    assert (("audit", "file") in [key for key, _ in mistakes(config)]) is wrong
