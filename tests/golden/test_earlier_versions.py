"""Data that earlier versions stored and sent to each other: this version reads it, and writes it alike (README.md,
"Upgrade").
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from kafka_share_proxy.commits.held_state import HeldCommits
from kafka_share_proxy.commits.state_records import INDIVIDUAL_COMMITS
from kafka_share_proxy.fleet.peer_protocol import HANDSHAKE_KINDS, MESSAGES, NONCE_BYTES, PeerProtocol
from kafka_share_proxy.offsets.ranges import OffsetSpan
from kafka_share_proxy.sharegroups.model.coordinator import ShareCoordinator
from kafka_share_proxy.sharegroups.model.settings import BrokerShareLimits
from kafka_share_proxy.sharegroups.state.held_state import HeldShareState
from kafka_share_proxy.sharegroups.state.state_records import SHARE_STATE
from kafka_share_proxy.views import state_records as views
from kafka_share_proxy.views.model.catalog import ViewCatalog
from kafka_share_proxy.wire.definitions import registry, specs
from kafka_share_proxy.wire.values import TopicPartition

from tests.golden.record_proxy import SECRET, built, link, state_records, values_of

RELEASES = {path.stem: json.loads(path.read_text()) for path in sorted(Path(__file__).parent.glob("proxy-*.json"))}


@pytest.fixture(params=RELEASES)
def release(request: pytest.FixtureRequest) -> Any:
    return RELEASES[request.param]


def plain(message: Any, fields: tuple[specs.FieldSpec, ...], names: Any) -> dict[str, Any]:
    """The values of a decoded message as JSON has them, of the fields that a release knew."""
    plain_values: dict[str, Any] = {}
    for field in fields:
        if field.attribute not in names:
            continue
        value, known = getattr(message, field.attribute), names[field.attribute]
        each, knowns = (value, known) if field.is_array else ([value], [known])
        sent = [_plain(field, *pair) for pair in zip(each, knowns, strict=True)]
        plain_values[field.attribute] = sent if field.is_array else sent[0]
    return plain_values


def _plain(field: specs.FieldSpec, value: Any, known: Any) -> Any:
    if field.type == "struct":
        assert field.struct is not None
        return plain(value, field.struct.fields, known)
    return bytes(value).hex() if field.type in ("bytes", "records", "uuid") else value


def test_every_message_is_read_as_it_was_meant(release: Any) -> None:
    for each in release["messages"]:
        decoded = registry.codec(each["name"], each["version"]).decode(bytes.fromhex(each["bytes"]))
        fields = specs.load(each["name"]).root.fields
        assert plain(decoded, fields, each["values"]) == each["values"], each["name"]


def test_every_message_is_written_as_that_release_reads_it(release: Any) -> None:
    """Later fields are tagged: a message without them has the same bytes."""
    for each in release["messages"]:
        message = built(each["name"], specs.load(each["name"]).root.fields, each["values"])
        assert registry.codec(each["name"], each["version"]).encode(message).hex() == each["bytes"], each["name"]


def test_kinds_of_messages_between_proxies_keep_their_numbers(release: Any) -> None:
    assert list(MESSAGES[: len(release["kinds"])]) == release["kinds"]


def test_records_in_topics_are_written_as_they_were(release: Any) -> None:
    """An owner of that release may read them after a downgrade, and in a fleet with this one."""
    assert list(state_records()) == release["records"]


async def test_records_in_topics_are_loaded(release: Any) -> None:
    records = {
        name: [(bytes.fromhex(r["key"]), bytes.fromhex(r["value"])) for r in release["records"] if r["topic"] == name]
        for name in (SHARE_STATE.topic, INDIVIDUAL_COMMITS.topic, views.TOPIC)
    }
    coordinator, catalog, held = ShareCoordinator(BrokerShareLimits()), ViewCatalog(), HeldCommits()
    for state, loads in ((SHARE_STATE, HeldShareState(coordinator)), (INDIVIDUAL_COMMITS, held)):
        owner_epochs = [state.owner_epoch_of(key) for key, _ in records[state.topic]]
        assert owner_epochs.count(None) == len(owner_epochs) - 1, "one takeover"
        await loads.load([pair for pair in records[state.topic] if state.owner_epoch_of(pair[0]) is None])
    for key, value in records[views.TOPIC]:
        views.take_in(catalog, key, value)
    assert coordinator.groups["g"].epoch == 5
    assert coordinator.resting == 1
    assert list(held.groups["g"].partitions[TopicPartition("t", 3)].ranges) == [OffsetSpan(43, 46)]
    assert held.groups["g"].has_marker
    assert catalog.binding("__view.r8.t") is not None
    assert catalog.plan("hot") is not None


@pytest.mark.parametrize("dials", [True, False], ids=["dials", "is dialled"])
def test_link_with_a_proxy_of_that_release_is_established_and_its_messages_are_read(release: Any, dials: bool) -> None:
    """This end has the nonce and address that the recorded end knew: its signatures hold."""
    name, nonce = ("old:1", b"o") if dials else ("new:1", b"n")
    mine = PeerProtocol(name, SECRET, nonce * NONCE_BYTES, dials=dials)
    sent = [bytes.fromhex(text) for text in release["link"]["dialled" if dials else "dialler"]]
    handshake = 2 if dials else 1
    for data in sent[:handshake]:
        mine.outgoing()
        assert list(mine.receive_data(data)) == []
    assert mine.is_established
    kinds = release["kinds"]
    assert mine.peer_kinds == len(kinds), "no message of a later kind is sent to it"
    got = [type(message).__name__ for data in sent[handshake:] for message in mine.receive_data(data)]
    assert got == kinds[HANDSHAKE_KINDS:]


def test_what_this_version_records_is_what_is_compared() -> None:
    """The recorder knows every kind, so that the next release is recorded whole."""
    assert len(link()["dialler"]) == 1 + len(MESSAGES) - HANDSHAKE_KINDS
    assert values_of(specs.load("PeerUnknown").root.fields, 0) == {"kind": 300, "id": 1 << 40}
