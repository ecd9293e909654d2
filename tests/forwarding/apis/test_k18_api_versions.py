"""ApiVersions: real brokers' responses (tests/golden) as a client gets them."""

from pathlib import Path

import pytest
from kafka_share_proxy.forwarding.apis import k18_api_versions
from kafka_share_proxy.forwarding.dispatch import route_table
from kafka_share_proxy.forwarding.dispatch.offered_versions import EffectiveVersions, Offer, effective, ranges_of
from kafka_share_proxy.forwarding.dispatch.routes import Context, header
from kafka_share_proxy.forwarding.limits import Limits
from kafka_share_proxy.forwarding.rewriting.address_book import AddressBook
from kafka_share_proxy.loop.promise import Task
from kafka_share_proxy.sharegroups import share_group_apis
from kafka_share_proxy.wire.codec import frames

GOLDEN = Path(__file__).parents[2] / "golden"


async def handler(call):
    return None


def golden(release: str, version: int) -> bytes:
    return bytes.fromhex((GOLDEN / release / f"ApiVersions.v{version}.hex").read_text())


@pytest.fixture
def versions() -> EffectiveVersions:
    return EffectiveVersions(Offer((share_group_apis.OFFER,)))


@pytest.fixture
def routes(versions):
    served = {key: route_table.Served(handler) for key in share_group_apis.OFFER.apis}
    return route_table.build(AddressBook(20000, "h", lambda *_: True), versions, Limits(), served)


@pytest.mark.parametrize("release", ["3.9.1", "4.3.0"])
@pytest.mark.parametrize("version", range(5))
def test_a_client_gets_the_effective_table_with_its_own_correlation_id(routes, versions, release, version):
    frame = golden(release, version)
    rewrite = routes[header(18, version)].rewrite
    for correlation_id in (0, 77):
        rewritten = rewrite(memoryview(correlation_id.to_bytes(4, "big") + frame[4:]), Context(node_id=3))
        assert int.from_bytes(rewritten[:4], "big") == len(rewritten) - 4
        got_id, response = frames.decode_response(18, version, rewritten[4:])
        upstream = ranges_of(frames.decode_response(18, version, frame)[1])
        assert got_id == correlation_id
        assert ranges_of(response) == effective(upstream, versions.offer)
        assert versions.upstream == upstream, "what the broker serves has been learnt"


def test_error_35_of_an_older_broker_is_understood_in_any_version(routes):
    """Body v0 in every version; the client is led to the highest version that both have."""
    frame = bytes.fromhex("0000000900230000000100120000 0003")
    for version in range(5):
        rewritten = routes[header(18, version)].rewrite(memoryview(frame), Context(node_id=1))
        assert rewritten == len(frame).to_bytes(4, "big") + frame


def test_another_error_is_forwarded_unchanged(routes):
    frame = bytes.fromhex("00000009003a" + "01" + "00000005" + "00")
    rewritten = routes[header(18, 3)].rewrite(memoryview(frame), Context(node_id=1))
    assert rewritten[4:] == frame


def test_a_version_that_is_not_offered_gets_the_response_of_a_broker(routes):
    """The same bytes as a real broker's response to a version above its own."""

    class Unread:
        correlation_id = 7
        message = client_id = None

    route = routes[header(18, 5)]
    done = []
    Task(route.handler(Unread()), done.append).start()
    frame = golden("4.3.0", 5)
    assert done[0].value == len(frame).to_bytes(4, "big") + frame
    assert route.opaque
    assert route.needs_no_authentication
    assert k18_api_versions.KEY == 18
