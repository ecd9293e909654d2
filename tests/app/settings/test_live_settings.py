"""Which settings differ, which of them a reload applies, and which files it watches."""

from __future__ import annotations

from dataclasses import fields
from functools import reduce
from typing import Any

import pytest
from kafka_share_proxy.app.settings.config import Config
from kafka_share_proxy.app.settings.live_settings import (
    LIVE,
    LIVE_LIMITS,
    SECRET_FILES,
    TLS_FILES,
    TLS_SECTIONS,
    changed,
    is_live,
    value_of,
    watched_files,
    with_values,
)
from kafka_share_proxy.forwarding.limits import Limits

from tests.support import documents

PAIR = {"cert_file": "/a", "key_file": "/b"}


def config(**settings: Any) -> Config:
    return Config.model_validate({"upstream": {"bootstrap": "a:1"}, "listen": "b:2"} | settings)


def test_only_settings_with_another_value_are_changed() -> None:
    old = config(drain_s=5, limits={"idle_client_s": 10, "connections": 7})
    new = config(log_level="debug", limits={"idle_client_s": 20, "connections": 7}, client_tls=PAIR)
    assert changed(old, new) == [
        "client_tls.cert_file",
        "client_tls.key_file",
        "log_level",
        "limits.idle_client_s",
        "drain_s",
    ]
    assert changed(old, old.model_copy(deep=True)) == []


def test_another_password_is_a_change() -> None:
    old, new = (config(upstream={"sasl": {"mechanism": "PLAIN", "password": each}}) for each in ("one", "two"))
    assert changed(old, new) == ["upstream.sasl.password"]


def test_other_certificate_files_are_applied_but_tls_is_not_switched_on_or_off() -> None:
    plain, one, two = config(), config(client_tls=PAIR), config(client_tls=PAIR | {"cert_file": "/c"})
    assert is_live("client_tls.cert_file", one, two)
    assert not is_live("client_tls.cert_file", plain, one)
    assert not is_live("client_tls.key_file", one, plain)
    assert not is_live("upstream.tls.server_name", one, two)


@pytest.mark.parametrize("name", sorted(LIVE))
def test_a_live_setting_exists_and_only_it_gets_the_new_value(name: str) -> None:
    *sections, key = name.split(".")
    if sections == ["limits"]:
        assert key in {each.name for each in fields(Limits)}
        old, new = config(limits={"frame_bytes": 5000, key: 3}), config(limits={key: 4, "dial_timeout_s": 2})
        after = with_values(old, new, [name])
        assert after.limits == {"frame_bytes": 5000, key: 4}
        assert (getattr(after.named_limits, key), after.named_limits.dial_timeout_s) == (4, 10)
        return
    old, new = config(first_port=10), config(first_port=20)
    holder = reduce(getattr, sections, new).model_copy(update={key: "new"})
    new = new.model_copy(update={sections[0]: holder}) if sections else holder
    after = with_values(old, new, [name])
    assert (value_of(after, name), after.first_port) == ("new", 10)
    assert value_of(old, name) != "new"


def test_a_limit_that_is_no_longer_written_has_its_default() -> None:
    after = with_values(config(limits={"idle_client_s": 5}), config(), ["limits.idle_client_s"])
    assert after.named_limits.idle_client_s == Limits().idle_client_s


def test_limits_are_changed_in_place() -> None:
    limits = Limits()
    limits.take(Limits(idle_client_s=1, frame_bytes=1), LIVE_LIMITS)
    assert (limits.idle_client_s, limits.frame_bytes) == (1, Limits().frame_bytes)


def test_the_files_of_tls_are_watched() -> None:
    paths = watched_files(config(client_tls=PAIR | {"client_ca_file": "/c"}, upstream={"tls": {"ca_file": "/d"}}))
    assert sorted(paths) == ["/a", "/b", "/c", "/d"]
    assert watched_files(config()) == []


def test_the_documents_name_every_live_setting() -> None:
    text = documents.OPERATE.read_text(encoding="utf-8").partition("| applied while it runs |")[2].partition("\n\n")[0]
    assert {name for name in LIVE if f"`{name}`" not in text} == set()
    assert {name for name in TLS_FILES + SECRET_FILES if f"`{name}`" not in text} == set()
    assert {name for name in TLS_SECTIONS if f"`{name}`" not in text} == set()
