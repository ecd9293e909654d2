"""The names of API keys."""

from __future__ import annotations

import subprocess
import sys

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


def test_no_definition_is_read_when_a_client_is_imported() -> None:
    program = (
        "import kafka_share_proxy as public; public.Consumer; public.ShareConsumer\n"
        "from kafka_share_proxy.wire.definitions import specs\n"
        "print(specs._texts.cache_info().misses)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "0\n"


def test_a_key_is_the_number_on_the_wire() -> None:
    """In headers, in look-ups and in texts."""
    assert ApiKey.SHARE_FETCH.to_bytes(2, "big") == b"\x00\x4e"
    assert {78: "here"}[ApiKey.SHARE_FETCH] == "here"
    assert f"API {ApiKey.SHARE_FETCH}" == "API 78"
