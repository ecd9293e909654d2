"""Resources of the proxy in requests about configurations, and stored settings of a group."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka_share_proxy.loop.promise import Task
from kafka_share_proxy.loop.slices import AT_ONCE
from kafka_share_proxy.sharegroups.apis.group_configs import (
    is_group_resource,
    is_ours,
    name_of,
    settings_of,
    stored_value,
)
from kafka_share_proxy.sharegroups.model.settings import GROUP_CONFIGS
from kafka_share_proxy.wire.errors import RemoteProtocolError


def entry(kind: int, name: str):
    return SimpleNamespace(resource_type=kind, resource_name=name)


@given(st.dictionaries(st.text(min_size=1), st.text(), min_size=1))
def test_settings_are_read_back_as_they_were_stored(settings):
    """They have the form of our own definition, after its version."""
    value = stored_value(settings)
    assert value is not None
    assert value[:2] == b"\x00\x00"
    assert settings_of(value) == settings


def test_no_settings_need_no_record():
    """The journal deletes the key instead."""
    assert stored_value({}) is None


@given(st.binary(max_size=60))
def test_any_bytes_are_settings_or_refused(noise):
    """Bytes of another release or a foreign writer never break the proxy in another way."""
    for value in (noise, b"\x00\x00" + noise):
        try:
            assert isinstance(settings_of(value), dict)
        except RemoteProtocolError:
            continue


@pytest.mark.parametrize("value", [b"", b"\x00", b"\x00\x01", b"\xff\xff", b"\x00\x00"])
def test_an_unknown_version_is_refused(value):
    """A proxy of another release wrote it."""
    with pytest.raises(RemoteProtocolError):
        settings_of(value)


def test_ours_are_the_settings_of_share_groups():
    """Known or not: a typing mistake must not go to a broker that may take it."""
    assert all(is_ours(key.name) for key in GROUP_CONFIGS)
    assert is_ours("share.typing.mistake")
    assert not is_ours("consumer.session.timeout.ms")
    assert not is_ours("streams.num.standby.replicas")


def test_only_group_resources_concern_us():
    """Other types do not."""
    assert [is_group_resource(entry(kind, "name")) for kind in (2, 4, 32)] == [False, False, True]


def test_results_are_in_the_order_of_the_request():
    """Their order is that of types and names; unrequested entries are last."""
    requested = [entry(32, "g"), entry(2, "t"), entry(32, "h")]
    results = [entry(2, "t"), entry(9, "?"), entry(32, "g"), entry(32, "h")]
    ordered: list[SimpleNamespace] = []

    async def order() -> None:
        ordered.extend(await AT_ONCE.in_order(map(name_of, requested), results, name_of))

    Task(order(), lambda _: None).start()
    assert ordered == [results[2], results[0], results[3], results[1]]
