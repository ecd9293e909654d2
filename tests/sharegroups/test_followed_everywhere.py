"""Group that is taken back, followed at all proxies of a fleet (sharegroups/README.md rules 100 and 101)."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from kafka_share_proxy.fleet.group_owners import CommandResult, PeerLost
from kafka_share_proxy.loop.promise import Promise, Task, settled
from kafka_share_proxy.sharegroups import followed_everywhere
from kafka_share_proxy.sharegroups.carried_requests import CarriedShareRequests
from kafka_share_proxy.sharegroups.followed_everywhere import LEASE_S, RESPONSE_WAIT_S, FollowedEverywhere, follow
from kafka_share_proxy.sharegroups.followed_group import FollowedState
from kafka_share_proxy.sharegroups.native_group import MoveRefused
from kafka_share_proxy.sharegroups.placement import ServeRule, ShareRules
from kafka_share_proxy.sharegroups.share_group_apis import choice_of

from tests.sharegroups.test_followed_group import GROUP, LOCK_S, Followed
from tests.support.ports import World

HERE, EDGE = "a:1", "b:1"


class Other(Followed):
    """Another proxy of the fleet, which does not follow the group yet."""

    def __init__(self) -> None:
        super().__init__()
        self.world.services.followed.clear()
        self.commands: list[str] = []
        self.silent = self.unaware = False

    def command(self, _feature: str, words: Sequence[str]) -> Promise[CommandResult]:
        self.commands.append(words[2])
        if self.silent:
            return Promise()
        result = None if self.unaware else follow(self.world.services, words)
        if (followed := self.world.services.followed.get(GROUP)) is not None:
            self.group = followed
        return settled(result or CommandResult(404, {"reason": "this proxy does not know the command"}))


class Whole:
    """Two proxies. The first one takes the group back."""

    def __init__(self) -> None:
        self.world, self.other = World(), Other()
        self.services = self.world.services
        self.members: dict[str, Any] = {EDGE: self.other}
        self.services.fleet = SimpleNamespace(groups={}, members=self.members)  # type: ignore[assignment]
        self.followed = FollowedEverywhere(self.services, GROUP, LOCK_S)

    def run(self, coroutine: Any) -> Any:
        task: Task[Any] = Task(coroutine, lambda _: None)
        task.start()
        if not task.finished:
            self.world.timers.advance(RESPONSE_WAIT_S)
        assert task.finished
        if task.error is not None:
            raise task.error
        return task.value

    def state(self) -> FollowedState:
        return self.run(self.followed.state())


@pytest.fixture
def whole() -> Whole:
    whole = Whole()
    whole.run(whole.followed.begin())
    return whole


def test_members_and_locks_of_all_proxies_are_known(whole: Whole) -> None:
    whole.other.fetch((0, 9))
    whole.other.send_request(76, 1, group_id=GROUP, member_id="there", member_epoch=1)
    whole.services.followed[GROUP].members.add("here")
    place = whole.other.place
    whole.services.followed[GROUP].locks.acquired(place, 20, 29, "here", 1e9)
    group_state = whole.state()
    assert group_state.members == {"here", "there"}
    assert group_state.locks == [(place, 0, 29)]
    assert (group_state.requests, group_state.has_expired, group_state.trouble) == (0, False, "")
    whole.other.world.timers.advance(LOCK_S)
    group_state = whole.state()
    assert (group_state.locks, group_state.has_expired) == ([(place, 20, 29)], True)


def test_each_step_is_taken_at_all_proxies_and_ends_there(whole: Whole) -> None:
    """A stopped request waits until the end. The proxy then queries the owner about the group."""
    other, at_brokers = whole.other, whole.other.world.services.at_brokers
    at_brokers[GROUP] = None
    whole.run(whole.followed.hold_back())
    assert other.group.holds_back
    assert GROUP in at_brokers
    whole.run(whole.followed.stop())
    waiting: Any = other.begin_fetch()
    assert (waiting.finished, GROUP in at_brokers, whole.state().requests) == (False, False, 0)
    whole.followed.end()
    assert waiting.finished
    assert other.world.services.followed == whole.services.followed == {}
    assert other.commands == ["follow", "hold-back", "stop", "stop", "end"]


def test_proxy_that_gets_no_command_follows_no_longer(whole: Whole) -> None:
    other = whole.other
    other.world.timers.advance(LEASE_S)
    assert other.fetch().error_code == 0
    other.world.timers.advance(0.1)
    assert other.send_request(76, 1, group_id=GROUP, member_id="m", member_epoch=1) == "forwarded"
    assert other.world.services.followed == {}


def test_restarted_proxy_is_noticed_because_it_knows_no_locks(whole: Whole) -> None:
    whole.other.world.services.followed.clear()
    with pytest.raises(MoveRefused, match=f"{EDGE} of the fleet was restarted meanwhile"):
        whole.state()


@pytest.mark.parametrize("change", ["lost", "joined", "left"])
def test_changed_fleet_is_refused(whole: Whole, change: str) -> None:
    whole.members |= {"lost": {EDGE: None}, "joined": {"c:1": whole.other}, "left": {}}[change]
    if change == "left":
        whole.members.clear()
    with pytest.raises(MoveRefused, match="the fleet has changed"):
        whole.state()


def test_proxy_that_cannot_follow_or_does_not_respond_is_named() -> None:
    whole = Whole()
    whole.other.unaware = True
    with pytest.raises(MoveRefused, match=f"{EDGE} of the fleet cannot follow a group; upgrade it"):
        whole.run(whole.followed.begin())
    whole.other.silent = True
    with pytest.raises(MoveRefused, match=f"{EDGE} of the fleet does not respond"):
        whole.run(whole.followed.begin())


def test_link_that_ends_during_a_command_refuses(whole: Whole) -> None:
    lost: Promise[CommandResult] = Promise()
    lost.fail(PeerLost("the link ended"))
    whole.members[EDGE] = SimpleNamespace(command=lambda *_: lost)
    with pytest.raises(PeerLost):
        whole.state()


@pytest.mark.parametrize("words", [[], ["POST", GROUP, "take-back", "10"], ["FOLLOW", GROUP, "unknown", "4.0"]])
def test_other_commands_are_left_to_others(whole: Whole, words: list[str]) -> None:
    assert follow(whole.services, words) is None


def test_proxy_that_joins_meanwhile_does_not_forward_requests_of_the_group(whole: Whole) -> None:
    """The owner returns that it serves the group, and refuses its requests until the end."""
    choice = choice_of(whole.services, ShareRules(True, (ServeRule(serve="auto"),)))
    carried = CarriedShareRequests(whole.services, {}, choice)
    assert (carried.knows(GROUP), carried.knows("another")) == (True, False)
    whole.followed.end()
    assert not carried.knows(GROUP)


def test_single_proxy_follows_alone() -> None:
    whole = Whole()
    whole.services.fleet = None
    whole.run(whole.followed.begin())
    assert whole.state().members == frozenset()
    assert whole.followed.stopped_s() < 0
    whole.run(whole.followed.stop())
    whole.world.timers.advance(3)
    assert whole.followed.stopped_s() == 3
    assert followed_everywhere.current(whole.services, GROUP) is not None
    whole.followed.end()
    assert followed_everywhere.current(whole.services, GROUP) is None
