"""How a view stands against its base: from what Metadata says of both, what has to be done before it can be shown."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from proxy.views.model.catalog import Binding
from proxy.views.model.names import KEY_RANGES, ViewName
from proxy.views.model.plans import Plan
from proxy.views.model.slots import Cut, EvenCut, RangeCut, StripeCut
from proxy.wire.errors import ErrorCode
from proxy.wire.values import ZERO_UUID


class Step(Enum):
    """What is to be done about a view whose base has changed."""

    READY = auto()
    """Nothing: it can be shown."""
    CREATE = auto()
    """Its topic is missing."""
    GROW = auto()
    """Its base has more partitions than it is for."""
    REPLACE = auto()
    """Its topic belongs to an earlier base of the same name: delete it, and create it anew."""
    REFUSE = auto()
    """It cannot be shown; `code` says why."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A topic as Metadata told it."""

    code: int
    """Error of the topic."""
    topic_id: bytes = ZERO_UUID
    partitions: int = 0


@dataclass(frozen=True, slots=True)
class Standing:
    """What to do about one view."""

    step: Step
    code: ErrorCode = ErrorCode.NONE
    """What clients are told; of REFUSE only."""
    partitions: int = 0
    """How many the view's topic must have."""
    reason: str = ""
    """REFUSE only, where the code does not say it all."""


def cut_of(name: ViewName, plan: Plan | None) -> Cut:
    """How the view divides its base; `plan` is the one it names, if it names one."""
    if isinstance(name.number, int):
        return EvenCut(name.number) if name.kind == KEY_RANGES else StripeCut(name.number)
    if plan is None:
        raise ValueError(f"plan {name.number!r} is not given")
    return RangeCut(plan.starts)


def judge(slots: int, view: Seen, base: Seen, binding: Binding | None, partitions_max: int) -> Standing:
    """What has to be done before a view can be shown.

    Args:
        slots: into how many a partition of the base is divided.
        view: its topic. base: the topic it looks at.
        binding: what is stored of a view of this name; of another topic id it says nothing.
        partitions_max: a view with more is refused.
    """
    if base.code != ErrorCode.NONE:
        return Standing(Step.REFUSE, ErrorCode.of(base.code))
    if view.code not in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
        return Standing(Step.REFUSE, ErrorCode.of(view.code))
    wanted = base.partitions * slots
    if wanted > partitions_max:
        reason = f"{base.partitions} partitions in {slots} slots each are more than views.partitions_max"
        return Standing(Step.REFUSE, ErrorCode.INVALID_TOPIC_EXCEPTION, reason=reason)
    if view.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return Standing(Step.CREATE, partitions=wanted)
    if binding is not None and binding.view_id == view.topic_id and binding.base_id != base.topic_id:
        return Standing(Step.REPLACE, partitions=wanted)
    if view.partitions < wanted:
        return Standing(Step.GROW, partitions=wanted)
    if view.partitions > wanted:
        reason = f"its topic has {view.partitions} partitions, and {wanted} are wanted: delete it"
        return Standing(Step.REFUSE, ErrorCode.INVALID_TOPIC_EXCEPTION, reason=reason)
    return Standing(Step.READY, partitions=wanted)
