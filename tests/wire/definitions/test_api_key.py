"""The names of API keys."""

from __future__ import annotations

import subprocess
import sys

import pytest
from kafka_share_proxy.wire.definitions import registry, specs
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.definitions.specs import snake_case


def test_the_names_are_those_of_the_message_definitions() -> None:
    """Each definition has its name here, and each name its definition."""
    requests = [specs.document(name) for name in specs.names() if name.endswith("Request")]
    defined = {each["apiKey"]: each["name"] for each in requests if each["validVersions"] != "none"}
    assert {int(key): key.name for key in ApiKey} == {
        key: snake_case(name.removesuffix("Request")).upper() for key, name in defined.items()
    }
    assert {key: f"{name}Request" for key, name in registry.API_KEYS.items()} == defined


@pytest.mark.parametrize(
    ("program", "count"),
    [
        ("import kafka_share_proxy as public; public.Consumer; public.ShareConsumer", 0),
        ("import kafka_share_proxy.app.serving.server", 1),
    ],
)
def test_definitions_are_read_with_the_program_of_the_proxy_but_not_with_a_client(program: str, count: int) -> None:
    """Workers that are forked later must not read those of another release."""
    shown = "from kafka_share_proxy.wire.definitions import specs; print(specs._texts.cache_info().currsize)"
    done = subprocess.run(
        [sys.executable, "-c", f"{program}\n{shown}"], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == f"{count}\n"


def test_a_key_is_the_number_on_the_wire() -> None:
    """In headers, in look-ups and in texts."""
    assert ApiKey.SHARE_FETCH.to_bytes(2, "big") == b"\x00\x4e"
    assert {78: "here"}[ApiKey.SHARE_FETCH] == "here"
    assert f"API {ApiKey.SHARE_FETCH}" == "API 78"
