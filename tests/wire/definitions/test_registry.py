"""Finding codecs by API key and version."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from kafka_share_proxy.wire.codec.compiler import Codec
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.definitions.registry import UnknownVersion
from kafka_share_proxy.wire.definitions.specs import SchemaError
from kafka_share_proxy.wire.errors import ProxyError


def test_apis_with_a_version() -> None:
    """Every API of the release; those whose versions are all gone (4 to 7) are not listed."""
    assert registry.API_KEYS[78] == "ShareFetch"
    assert registry.API_KEYS[18] == "ApiVersions"
    assert not {4, 5, 6, 7} & set(registry.API_KEYS)
    assert list(registry.API_KEYS) == sorted(registry.API_KEYS)
    assert len(registry.API_KEYS) == 91


def test_versions_and_listeners() -> None:
    """As in the definitions."""
    assert registry.versions(78) == (1, 2)
    assert registry.versions(0) == (3, 13)
    assert "broker" in registry.listeners(78)
    assert registry.listeners(52) == ("controller",)


@pytest.mark.parametrize("codec_of", [registry.request, registry.response])
def test_codecs_are_made_once(codec_of: Callable[[int, int], Codec]) -> None:
    """Compiling takes milliseconds: it is paid once."""
    assert codec_of(78, 2) is codec_of(78, 2)
    assert codec_of(78, 2) is not codec_of(78, 1)


@pytest.mark.parametrize(("key", "version"), [(78, 0), (78, 3), (7, 0), (4711, 0), (-1, 0), (18, -1)])
def test_an_unknown_api_or_version_is_named_in_the_error(key: int, version: int) -> None:
    """The error for an unknown API or version names it, and is a KeyError."""
    for codec_of in (registry.request, registry.response):
        with pytest.raises(UnknownVersion) as caught:
            codec_of(key, version)
        assert isinstance(caught.value, KeyError)
        assert isinstance(caught.value, ProxyError)
        assert str(key) in str(caught.value) or "ShareFetch" in str(caught.value) or "ApiVersions" in str(caught.value)


def test_messages_that_belong_to_no_api() -> None:
    """Headers and record schemas are found by name."""
    codec = registry.codec("EndTxnMarker", 0)
    assert codec.decode(b"\0\0\0\7").coordinator_epoch == 7
    with pytest.raises(SchemaError):
        registry.message("NoSuchThing")
    with pytest.raises(UnknownVersion):
        registry.codec("EndTxnMarker", 9)


def test_unknown_versions_are_not_cached() -> None:
    """A peer that requests version after version must not fill the memory."""
    before = registry.codec.cache_info().currsize
    for version in range(100, 200):
        with pytest.raises(UnknownVersion):
            registry.request(78, version)
    assert registry.codec.cache_info().currsize == before
