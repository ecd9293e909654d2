"""The records of `__proxy_views`."""

from __future__ import annotations

import pytest
from kafka_share_proxy.views import state_records
from kafka_share_proxy.views.model.catalog import Binding, ViewCatalog
from kafka_share_proxy.views.model.plans import Plan
from kafka_share_proxy.wire.errors import RemoteProtocolError

BINDING = Binding(b"v" * 16, b"b" * 16)
PLAN = Plan("hot", (0, 77, 4_000_000_000), "orders")


def test_bindings_and_plans_are_read_as_they_were_written() -> None:
    """And a binding is taken back by a record without a value."""
    catalog = ViewCatalog()
    state_records.take_in(catalog, state_records.binding_key("v"), state_records.binding_value(BINDING))
    state_records.take_in(catalog, state_records.plan_key("hot"), state_records.plan_value(PLAN))
    assert catalog.binding("v") == BINDING
    assert catalog.plans == (PLAN,)
    state_records.take_in(catalog, state_records.binding_key("v"), None)
    assert catalog.binding("v") is None


def test_the_layout_is_the_one_that_is_stored_in_clusters() -> None:
    """Golden bytes: what older proxies have written stays readable."""
    assert state_records.binding_key("ab") == b"\0\0\0\2ab"
    assert state_records.binding_value(BINDING) == b"\0\0" + b"v" * 16 + b"b" * 16 + b"\0"
    assert state_records.plan_key("x") == b"\0\1\0\1x"
    assert state_records.plan_value(Plan("x", (0, 1))) == b"\0\0\1\3" + bytes(8) + bytes(7) + b"\1\0"


def test_a_plan_that_is_written_again_with_other_ranges_changes_nothing() -> None:
    """It says so instead; a deleted plan stays too, for views that are cut by it."""
    catalog = ViewCatalog()
    catalog.add_plan(PLAN)
    with pytest.raises(RemoteProtocolError, match="first ones stay"):
        state_records.take_in(catalog, state_records.plan_key("hot"), state_records.plan_value(Plan("hot", (0, 78))))
    state_records.take_in(catalog, state_records.plan_key("hot"), None)
    assert catalog.plan("hot") == PLAN


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b""),
        (b"", b""),
        (b"\0", b""),
        (b"\0\x09abc", b""),
        (state_records.binding_key("v"), b""),
        (state_records.binding_key("v"), b"\0\1" + bytes(33)),
        (state_records.binding_key("v"), state_records.binding_value(BINDING)[:-2]),
        (state_records.binding_key("v")[:-1], state_records.binding_value(BINDING)),
        (state_records.plan_key("hot"), state_records.binding_value(BINDING)),
        (state_records.plan_key("a.b"), state_records.plan_value(PLAN)),
    ],
)
def test_an_undecodable_record_is_refused_and_changes_nothing(key: bytes | None, value: bytes) -> None:
    """Types, versions and bytes that are not known here."""
    catalog = ViewCatalog()
    with pytest.raises(RemoteProtocolError):
        state_records.take_in(catalog, key, value)
    assert catalog.bound == catalog.plans == ()


def test_weights_of_a_plan_are_stored_where_earlier_proxies_ignore_them() -> None:
    """In a tagged field: the version of the value stays 0, and a plan without weights has the same bytes as before."""
    catalog = ViewCatalog()
    weighted = Plan("hot", (0, 77), "orders", (0.25, 0.75))
    state_records.take_in(catalog, state_records.plan_key("hot"), state_records.plan_value(weighted))
    (stored,) = catalog.plans
    assert stored.weights == (0.25, 0.75)
    bare = state_records.plan_value(Plan("hot", (0, 77), "orders"))
    assert state_records.plan_value(weighted).startswith(bare[:-1])
