"""Audit as the settings want it."""

from __future__ import annotations

from pathlib import Path

import pytest
from kafka_share_proxy.app.observing.audit_file import AuditFile
from kafka_share_proxy.app.observing.audit_topic import AuditTopic
from kafka_share_proxy.app.serving import audit_setup
from kafka_share_proxy.app.settings.config import Config
from kafka_share_proxy.app.settings.config_consistency import mistakes
from kafka_share_proxy.brokers.own_connection import OwnSettings
from kafka_share_proxy.commits.services import CommitServices
from kafka_share_proxy.durable.memory_journal import MemoryJournal
from kafka_share_proxy.forwarding.dispatch import route_table
from kafka_share_proxy.forwarding.dispatch.offered_versions import EffectiveVersions, Offer
from kafka_share_proxy.forwarding.dispatch.routes import header
from kafka_share_proxy.forwarding.limits import Limits
from kafka_share_proxy.views.model.plans import Plan
from kafka_share_proxy.views.services import Inline

from tests.support import audit_lines
from tests.support.ports import World
from tests.support.view_ports import ViewWorld


def set_up(world: World, **audit: object) -> audit_setup.AuditShipping | None:
    config = Config.model_validate({"audit": audit})
    audited = audit_setup.Audited(world.services)
    return audit_setup.set_up(config, audited, "proxy:9092", OwnSettings(), lambda *_, **__: None)


def test_off_without_file_and_topic() -> None:
    world = World()
    assert set_up(world) is None
    assert (world.services.audit, world.services.writes.audit) == (None, None)


def test_a_file_and_a_topic(tmp_path: Path) -> None:
    world = World()
    shipping = set_up(world, file=str(tmp_path / "a.jsonl"), topic="audit")
    assert [type(sink) for sink in shipping.sinks] == [AuditFile, AuditTopic]
    assert world.services.audit is world.services.writes.audit
    assert world.services.audit._audit is shipping.audit


def scopes(shipping: audit_setup.AuditShipping) -> dict[str, str]:
    """Return subject -> its coverage, as the stream reports it."""
    found = audit_lines.waiting(shipping.audit.log)
    return {event["subject"]: event["sees"] for event in found if event["kind"] == "scope"}


def test_what_cannot_be_seen_is_told_and_logged() -> None:
    """Also where audit is on and everything is served by the brokers."""
    world, heard = World(), list[tuple[str, str]]()
    config = Config.model_validate({"audit": {"topic": "audit"}})
    world.services.serve_share = False

    def note(_event: str, /, **context: object) -> None:
        heard.append((str(context["subject"]), str(context["sees"])))

    shipping = audit_setup.set_up(config, audit_setup.Audited(world.services), "p", OwnSettings(), note)
    expected = {"share_groups": "part", "views": "none", "commits": "none", "plain_commits": "none"}
    expected["key_samples"] = "part"
    assert shipping is not None
    assert scopes(shipping) == dict(heard) == expected
    assert world.services.audit is None


@pytest.mark.parametrize(
    ("mixed", "settings", "sees"),
    [
        (False, {}, "all"),
        (True, {}, "part"),
        (False, {"cluster": {"mode": "fleet", "peer": {"listen": "127.0.0.1:1", "secret": "s" * 16}}}, "all"),
    ],
    ids=["served here", "some at the brokers", "a fleet"],
)
def test_share_groups_that_are_served_here_are_seen(mixed: bool, settings: dict[str, object], sees: str) -> None:
    world = ViewWorld()
    config = Config.model_validate({"audit": {"topic": "audit", "key_samples_per_s": 0}} | settings)
    commits = CommitServices(services=world.services, journal=MemoryJournal())
    audited = audit_setup.Audited(world.services, world.views, commits, are_mixed=mixed)
    shipping = audit_setup.set_up(config, audited, "p", OwnSettings(), lambda *_, **__: None)
    assert shipping is not None
    told = {"views": "all", "commits": "part", "plain_commits": "none", "key_samples": "none"}
    assert scopes(shipping) == {"share_groups": sees} | told
    assert world.views.reads.audit is not None
    assert commits.audit is not None


def test_plans_that_are_known_and_those_that_come_are_told() -> None:
    world = ViewWorld()
    world.views.catalog.add_plan(Plan("a", (0, 5)))
    config = Config.model_validate({"audit": {"topic": "audit"}})
    audited = audit_setup.Audited(world.services, world.views)
    shipping = audit_setup.set_up(config, audited, "p", OwnSettings(), lambda *_, **__: None)
    world.views.catalog.add_plan(Plan("b", (0, 5)))
    assert shipping is not None
    found = audit_lines.waiting(shipping.audit.log)
    assert [event["plan_id"] for event in found if event["kind"] == "plan_loaded"] == ["a", "b"]


def test_forwarded_share_groups_are_watched_where_audit_is_on() -> None:
    world = World()
    built = route_table.build(world.services.book, EffectiveVersions(Offer()), Limits(), {})
    assert audit_setup.watching(None, built) is built
    shipping = set_up(world, topic="audit")
    watched = audit_setup.watching(shipping, built)
    assert watched[header(79, 2)].amend is not None
    audit_setup.give_workers(None, Inline())
    audit_setup.give_workers(shipping, workers := Inline())
    assert shipping is not None
    assert shipping.audit.keys.workers is workers


def test_each_start_has_an_id_of_its_own(tmp_path: Path) -> None:
    """seq begins anew at each start, and (proxy_id, seq) must not come twice."""
    ids = {set_up(World(), topic="audit", proxy_id=name)._proxy_id for name in ("blue", "blue", None)}
    assert len(ids) == 3
    assert sorted(text.rpartition("-")[0] for text in ids) == ["blue", "blue", "proxy:9092"]


def test_topics_are_named_or_told_by_id() -> None:
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
