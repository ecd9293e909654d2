"""Handlers of views in front of those of share groups: one route for each API, and both see what is theirs."""

from __future__ import annotations

from typing import Any

from proxy.forwarding.interfaces import Call
from proxy.forwarding.route_table import Served
from proxy.loop.promise import Task
from proxy.sharegroups import share_group_apis
from proxy.views import view_apis
from proxy.wire import frames
from tests.support import ports
from tests.support.view_broker import World, build

BEAT = 68


def views(answer: bytes | None, here: bool = True) -> Served:
    async def handle(call: Call) -> bytes | None:
        return answer

    return Served(handle, lambda frame: here)


def served_by(served: Served, **fields: Any) -> bytes | None:
    world = World()
    message = build("ConsumerGroupHeartbeatRequest", {"group_id": "g", "member_id": "m"} | fields)
    call = Call(BEAT, 1, 7, "c", frames.decode_request(memoryview(frames.request(BEAT, 1, 7, "c", message))[4:])[1],
                world.client)  # fmt: skip
    task: Task[bytes | None] = Task(served.handler(call), lambda _: None)
    task.start()
    assert task.finished
    assert task.error is None
    return task.value


def test_a_view_goes_first_and_what_it_lets_go_is_looked_at_again() -> None:
    """Three ways: the view answers, the other answers, the request passes."""
    for view, other, here, expected in (
        (b"view", b"other", True, b"view"),
        (None, b"other", True, b"other"),
        (None, b"other", False, None),
    ):
        joined = view_apis.in_front({BEAT: views(view)}, {BEAT: views(other, here)})[BEAT]
        assert served_by(joined) == expected


def test_a_request_is_picked_when_either_wants_it() -> None:
    """And an API that is served here always stays so."""
    wants, not_ = views(None, True), views(None, False)
    frame = memoryview(b"")
    for one, other, expected in ((wants, not_, True), (not_, wants, True), (not_, not_, False)):
        joined = view_apis.in_front({BEAT: one}, {BEAT: other})[BEAT]
        assert joined.serve_here is not None
        assert joined.serve_here(frame) is expected
    always = view_apis.in_front({BEAT: not_}, {BEAT: Served(not_.handler)})[BEAT]
    assert always.serve_here is None


def test_what_only_one_of_them_serves_stays_as_it_is() -> None:
    """No wrapper, no cost."""
    view, other = views(None), views(None)
    assert view_apis.in_front({BEAT: view}, {1: other}) == {BEAT: view, 1: other}


def test_the_handlers_of_the_product_fit_together() -> None:
    """Every API of either is there; those of share groups that views do not touch are the same."""
    share = share_group_apis.served(ports.World().services)
    view = view_apis.served(World().views)
    both = view_apis.in_front(view, share)
    assert set(both) == set(share) | set(view)
    assert {key: both[key] for key in set(share) - set(view)} == {key: share[key] for key in set(share) - set(view)}
