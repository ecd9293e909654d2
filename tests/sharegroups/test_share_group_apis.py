"""The handlers of the product fit the table of routes and the versions offered."""

from proxy.forwarding import route_table
from proxy.forwarding.address_book import AddressBook
from proxy.forwarding.offered_versions import SHARE_APIS, EffectiveVersions, Offer
from proxy.forwarding.routes import Kind
from proxy.sharegroups import share_group_apis
from proxy.sharegroups.apis import (
    k76_share_group_heartbeat,
    k77_share_group_describe,
    k78_share_fetch,
    k79_share_acknowledge,
    k90_describe_share_group_offsets,
    k91_alter_share_group_offsets,
    k92_delete_share_group_offsets,
)
from proxy.wire import registry
from proxy.wire.values import Limits
from tests.support.ports import World


def routes():
    served = share_group_apis.served(World().services)
    book = AddressBook(20000, "h", lambda *_: True)
    return route_table.build(book, EffectiveVersions(Offer(serve_share=True)), Limits(), served), served


def test_the_share_handlers_serve_exactly_what_is_offered():
    modules = (
        k76_share_group_heartbeat,
        k77_share_group_describe,
        k78_share_fetch,
        k79_share_acknowledge,
        k90_describe_share_group_offsets,
        k91_alter_share_group_offsets,
        k92_delete_share_group_offsets,
    )
    assert {module.KEY: module.VERSIONS for module in modules} == dict(SHARE_APIS)


def test_every_handler_has_all_versions_of_its_api():
    built, served = routes()
    for key, entry in served.items():
        found = [route for route in built.values() if route.key == key]
        lowest, highest = registry.versions(key)
        assert sorted(route.version for route in found) == list(range(lowest, highest + 1))
        assert {route.handler for route in found} == {entry.handler}
        assert {route.kind for route in found} == {Kind.LOCAL if entry.serve_here is None else Kind.INSPECT}


def test_no_handler_takes_what_the_plane_must_see_itself():
    _, served = routes()
    assert not set(served) & {*route_table.KINDS, *route_table.REPAIRS} - set(SHARE_APIS)
