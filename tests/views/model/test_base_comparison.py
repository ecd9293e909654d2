"""Required action for a view, derived from its Metadata and its base's."""

from __future__ import annotations

import pytest
from kafka_share_proxy.views.model.base_comparison import NeededStep, Step, TopicState, cut_of, needed_step
from kafka_share_proxy.views.model.catalog import Binding
from kafka_share_proxy.views.model.names import ViewName
from kafka_share_proxy.views.model.plans import Plan
from kafka_share_proxy.views.model.slots import EvenCut, RangeCut, StripeCut
from kafka_share_proxy.wire.errors import ErrorCode

V, B, OLD = b"v" * 16, b"b" * 16, b"o" * 16
BASE = TopicState(0, B, 3)


@pytest.mark.parametrize(
    ("view", "base", "binding", "expected"),
    [
        (TopicState(0, V, 12), BASE, Binding(V, B), NeededStep(Step.READY, partitions=12)),
        (TopicState(0, V, 12), BASE, None, NeededStep(Step.READY, partitions=12)),
        (TopicState(3), BASE, Binding(V, B), NeededStep(Step.CREATE, partitions=12)),
        (TopicState(0, V, 4), BASE, Binding(V, B), NeededStep(Step.GROW, partitions=12)),
        (TopicState(0, V, 12), BASE, Binding(V, OLD), NeededStep(Step.REPLACE, partitions=12)),
        (TopicState(0, V, 40), BASE, Binding(V, OLD), NeededStep(Step.REPLACE, partitions=12)),
        (TopicState(0, V, 12), BASE, Binding(OLD, OLD), NeededStep(Step.READY, partitions=12)),
    ],
)
def test_a_view_is_created_grown_or_replaced_as_its_base_requires(
    view: TopicState, base: TopicState, binding: Binding | None, expected: NeededStep
) -> None:
    """A binding of another topic id does not apply to this one; a recreated base has priority over any count."""
    assert needed_step(4, view, base, binding, 100) == expected


@pytest.mark.parametrize(
    ("view", "base", "code"),
    [
        (TopicState(0, V, 12), TopicState(3), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TopicState(3), TopicState(3), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TopicState(0, V, 12), TopicState(29), ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        (TopicState(29), BASE, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        (TopicState(5), BASE, ErrorCode.LEADER_NOT_AVAILABLE),
        (TopicState(0, V, 13), BASE, ErrorCode.INVALID_TOPIC_EXCEPTION),
        (TopicState(3), TopicState(0, B, 26), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (TopicState(3), TopicState(12345), ErrorCode.of(12345)),
    ],
)
def test_a_view_that_cannot_be_served_is_refused(view: TopicState, base: TopicState, code: ErrorCode) -> None:
    """The base's own error goes first; a view larger than its base allows, or than the limit, is refused."""
    needed = needed_step(4, view, base, Binding(V, B), 100)
    assert (needed.step, needed.code) == (Step.REFUSE, code)


def test_a_name_says_how_the_base_is_cut() -> None:
    """Even ranges, stripes, or the ranges of a plan."""
    assert cut_of(ViewName("r", 4, "t"), None) == EvenCut(4)
    assert cut_of(ViewName("s", 4, "t"), None) == StripeCut(4)
    assert cut_of(ViewName("p", "hot", "t"), Plan("hot", (0, 9))) == RangeCut((0, 9))
    with pytest.raises(ValueError, match="hot"):
        cut_of(ViewName("p", "hot", "t"), None)
