"""The table of routes as a mapping."""

from kafka_share_proxy.forwarding.dispatch.routes import Kind, Route, Routes, header, refusal


def test_a_route_is_found_by_the_first_four_bytes_of_a_request():
    routes = Routes()
    route = Route(kind=Kind.FORWARD, key=3, version=12)
    routes.add(route)
    assert routes[bytes.fromhex("0003000c")] is route


def test_an_unlisted_api_is_refused_and_not_remembered():
    """A peer that sends nonsense must not make the table grow."""
    routes = Routes()
    for nonsense in (b"\xff\xff\x7f\xff", b"GET ", b"\x16\x03\x01\x02"):
        route = routes[nonsense]
        assert route.kind is Kind.REFUSE
        assert str(route.key) in route.reason
    assert len(routes) == 0
    assert routes[b"\xff\xff\x7f\xff"].key == -1


def test_a_fallback_decides_for_what_is_not_listed():
    routes = Routes(lambda key, version: refusal(key, version, "because"))
    assert routes[header(18, 99)] == Route(kind=Kind.REFUSE, key=18, version=99, reason="because")
