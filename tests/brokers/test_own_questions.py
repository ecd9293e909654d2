"""Questions of handlers under the proxy's own identity."""

from collections.abc import Awaitable, Callable

import pytest
import trio
from kafka_share_proxy.brokers import own_questions
from kafka_share_proxy.brokers.own_connection import OwnSettings
from kafka_share_proxy.brokers.own_questions import OwnIdentityQuestions
from kafka_share_proxy.wire import registry
from kafka_share_proxy.wire.api_key import ApiKey
from kafka_share_proxy.wire.errors import UpstreamLost
from kafka_share_proxy.wire.values import Address

from tests.support.small_broker import Broker, Net

A, B = Address("a", 1), Address("b", 2)

Test = Callable[[OwnIdentityQuestions], Awaitable[None]]


def question():
    return registry.message("MetadataRequest")(topics=[], allow_auto_topic_creation=False)


async def with_questions(brokers: dict[Address, Broker | None], test: Test) -> None:
    """Run a test with brokers 1 and 2."""
    async with trio.open_nursery() as nursery:
        net = Net(nursery, brokers)
        asking = OwnIdentityQuestions(nursery, OwnSettings(connect=net), {1: A, 2: B}.get)
        with trio.fail_after(60):
            await test(asking)
        assert asking.under_way == 0
        nursery.cancel_scope.cancel()


async def settled(promise):
    came = trio.Event()
    promise.on_settled(came.set)
    await came.wait()
    return promise.result()


async def test_the_named_broker_is_asked(autojump_clock: trio.testing.MockClock) -> None:
    async def test(asking: OwnIdentityQuestions) -> None:
        answer = await settled(asking.ask(1, ApiKey.METADATA, question()))
        assert [broker.node_id for broker in answer.brokers] == [1]

    await with_questions({A: Broker(), B: None}, test)


async def test_a_broker_that_cannot_be_asked_is_an_error(autojump_clock: trio.testing.MockClock) -> None:
    """Not reached, not known: the promise fails, nothing else does."""

    async def test(asking: OwnIdentityQuestions) -> None:
        for node_id in (2, 3):
            with pytest.raises(UpstreamLost):
                await settled(asking.ask(node_id, ApiKey.METADATA, question()))

    await with_questions({A: Broker(), B: None}, test)


@pytest.mark.parametrize("lost", ["answers", "dials"])
async def test_broker_lost_without_a_word_is_not_waited_for_long(
    autojump_clock: trio.testing.MockClock, lost: str
) -> None:
    async with trio.open_nursery() as nursery:
        broker = Broker()
        net = Net(nursery, {A: broker})
        asking = OwnIdentityQuestions(nursery, OwnSettings(connect=net), {1: A}.get)
        broker.silent = lost == "answers"
        net.black_holes = {A} if lost == "dials" else set()
        began = trio.current_time()
        with pytest.raises(UpstreamLost, match="did not answer within 5 s"):
            await settled(asking.ask(1, ApiKey.METADATA, question()))
        assert trio.current_time() - began == pytest.approx(own_questions.ANSWER_S)
        assert asking.under_way == 0
        nursery.cancel_scope.cancel()


async def test_one_too_many_fails_at_once(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_questions, "QUESTIONS_MAX", 1)

    async def test(asking: OwnIdentityQuestions) -> None:
        first, second = asking.ask(1, ApiKey.METADATA, question()), asking.ask(1, ApiKey.METADATA, question())
        with pytest.raises(UpstreamLost, match="under way"):
            second.result()
        await settled(first)

    await with_questions({A: Broker(), B: None}, test)
