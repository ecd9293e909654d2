"""The names of API keys."""

from __future__ import annotations

from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.definitions.specs import snake_case


def test_the_names_are_those_of_the_message_definitions() -> None:
    """Each definition has its name here, and each name its definition."""
    assert {int(key): key.name for key in ApiKey} == {
        key: snake_case(name).upper() for key, name in registry.API_KEYS.items()
    }


def test_a_key_is_the_number_on_the_wire() -> None:
    """In headers, in look-ups and in texts."""
    assert ApiKey.SHARE_FETCH.to_bytes(2, "big") == b"\x00\x4e"
    assert {78: "here"}[ApiKey.SHARE_FETCH] == "here"
    assert f"API {ApiKey.SHARE_FETCH}" == "API 78"
