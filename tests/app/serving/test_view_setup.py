"""Views, put together."""

from __future__ import annotations

import pytest
from kafka_share_proxy.app.serving import view_setup
from kafka_share_proxy.app.settings.config import Config
from kafka_share_proxy.brokers.own_connection import OwnSettings
from kafka_share_proxy.forwarding.dispatch import route_table
from kafka_share_proxy.forwarding.dispatch.offered_versions import EffectiveVersions, Offer
from kafka_share_proxy.forwarding.dispatch.routes import Kind, header
from kafka_share_proxy.forwarding.limits import Limits
from kafka_share_proxy.forwarding.rewriting.address_book import AddressBook
from kafka_share_proxy.views.model.catalog import Binding
from kafka_share_proxy.views.stored_state import ViewState

from tests.support.view_broker import World

CONFIG = Config(listen="h:1", upstream={"bootstrap": ["b:1"]})


def set_up(config: Config = CONFIG) -> view_setup.ViewRuntime | None:
    return view_setup.set_up(config, World().services, OwnSettings(), lambda *_, **__: None)


def test_views_are_kept_in_the_cluster_unless_told_otherwise() -> None:
    """And say so where probes look."""
    running = set_up()
    assert running is not None
    assert isinstance(running.store, ViewState)
    assert running.state() == {"ready": 0, "plans": 0, "kept": "in topic __proxy_views"}
    running.store.off = "no rights"
    assert running.missing == "no rights"
    in_memory = set_up(CONFIG.model_copy(update={"views": Config(views={"state": "memory"}).views}))
    assert in_memory is not None
    assert in_memory.missing == ""
    assert "memory" in str(in_memory.state()["kept"])


def test_switched_off_there_is_nothing() -> None:
    """No handler, no store, no watch."""
    config = CONFIG.model_copy(update={"views": Config(views={"serve": False}).views})
    assert set_up(config) is None
    assert view_setup.with_views(None, {}) == {}


def test_produce_is_only_looked_into_while_a_view_is_known() -> None:
    """It is the hottest path of all; everything else is the same."""
    running = set_up()
    assert running is not None
    views = running.services
    book = AddressBook(20000, "h", lambda *_: True)
    versions = EffectiveVersions(Offer())
    built = route_table.build(book, versions, Limits(), view_setup.with_views(views, {}))
    routes = view_setup.routes(views, built)
    produce = header(0, 9)
    assert routes()[produce].kind is Kind.PRODUCE
    assert routes()[produce].serve_here is None
    assert {name: route for name, route in routes().items() if route.key} == {
        name: route for name, route in built.items() if route.key
    }
    views.catalog.bind("v", Binding(b"v" * 16, b"b" * 16))
    assert routes() is built
    assert routes()[produce].serve_here is not None
    views.catalog.bind("v", None)
    assert routes() is not built
    assert view_setup.routes(None, built)() is built


@pytest.mark.parametrize(
    ("setting", "value"), [("slots_max", 16), ("partitions_max", 99), ("views_max", 7), ("create_wait_s", 2.5)]
)
def test_settings_reach_their_parts(setting: str, value: float) -> None:
    """They have the same name."""
    config = CONFIG.model_copy(update={"views": Config(views={setting: value}).views})
    running = set_up(config)
    assert running is not None
    assert getattr(running.services.options, setting) == value


@pytest.mark.parametrize(
    ("topic", "base"), [("__view.s4.orders", "orders"), ("orders", "orders"), ("__view.x.orders", "__view.x.orders")]
)
def test_base_of_a_view_is_in_its_name(topic: str, base: str) -> None:
    assert view_setup.base_of(topic) == base
