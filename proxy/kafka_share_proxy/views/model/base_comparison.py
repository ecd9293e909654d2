"""Comparison of a view with its base, from Metadata of both."""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple

from kafka_share_proxy.views.model.catalog import Binding
from kafka_share_proxy.views.model.names import KEY_RANGES, ViewName
from kafka_share_proxy.views.model.plans import Plan
from kafka_share_proxy.views.model.slots import Cut, EvenCut, RangeCut, StripeCut
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import ZERO_UUID


class Step(Enum):
    """Kind of action for a view."""

    READY = auto()
    CREATE = auto()
    """Create its topic, which is missing."""
    GROW = auto()
    """Add partitions, because the base has grown."""
    REPLACE = auto()
    """Create its topic again, which belongs to an earlier base."""
    REFUSE = auto()
    """Refuse the view with `code`."""


class TopicState(NamedTuple):
    """A topic as shown in Metadata."""

    code: int
    topic_id: bytes = ZERO_UUID
    partitions: int = 0


class NeededStep(NamedTuple):
    """Action needed for one view."""

    step: Step
    code: ErrorCode = ErrorCode.NONE
    partitions: int = 0
    """Number of partitions that the view must have."""
    reason: str = ""


def cut_of(name: ViewName, plan: Plan | None) -> Cut:
    """Return the cut of a view. Raises ValueError for the view of a plan without the plan."""
    if isinstance(name.number, int):
        return EvenCut(name.number) if name.kind == KEY_RANGES else StripeCut(name.number)
    if plan is None:
        raise ValueError(f"plan {name.number!r} is not given")
    return RangeCut(plan.starts)


def needed_step(
    slots: int, view: TopicState, base: TopicState, binding: Binding | None, partitions_max: int
) -> NeededStep:
    """Return what a view needs next. The stored `binding` is ignored if it has another topic id."""
    if base.code != ErrorCode.NONE:
        return NeededStep(Step.REFUSE, ErrorCode.of(base.code))
    if view.code not in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
        return NeededStep(Step.REFUSE, ErrorCode.of(view.code))
    needed = base.partitions * slots
    if needed > partitions_max:
        reason = f"{base.partitions} partitions in {slots} slots each are more than views.partitions_max"
        return NeededStep(Step.REFUSE, ErrorCode.INVALID_TOPIC_EXCEPTION, reason=reason)
    if view.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return NeededStep(Step.CREATE, partitions=needed)
    if binding is not None and binding.view_id == view.topic_id and binding.base_id != base.topic_id:
        return NeededStep(Step.REPLACE, partitions=needed)
    if view.partitions < needed:
        return NeededStep(Step.GROW, partitions=needed)
    if view.partitions > needed:
        reason = f"its topic has {view.partitions} partitions, and it needs {needed}: delete it"
        return NeededStep(Step.REFUSE, ErrorCode.INVALID_TOPIC_EXCEPTION, reason=reason)
    return NeededStep(Step.READY, partitions=needed)
