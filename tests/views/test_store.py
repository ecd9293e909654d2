"""A store without durability."""

from __future__ import annotations

from kafka_share_proxy.views import state_records
from kafka_share_proxy.views.model.catalog import Binding, ViewCatalog
from kafka_share_proxy.views.store import MemoryViewStore


def test_stored_records_are_known_immediately_and_the_store_is_reported_as_temporary() -> None:
    """For tests, and where `views.state` is memory."""
    catalog = ViewCatalog()
    store = MemoryViewStore(catalog)
    binding = Binding(b"v" * 16, b"b" * 16)
    assert store.store(state_records.binding_key("v"), state_records.binding_value(binding)).done
    assert catalog.binding("v") == binding
    assert store.synced().done
    assert store.off
