"""Names of view topics: `__view.r8.orders`, `__view.s4.orders`, `__view.p<plan>.orders`.

    r<R>     R even ranges of the keys' hashes
    s<R>     R stripes of 64 offsets
    p<id>    the ranges of a stored plan

Rules: views/README.md 1 and 2.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from kafka_share_proxy.wire.errors import ProxyError

PREFIX = "__view."
PREFIX_BYTES = PREFIX.encode()

KEY_RANGES, STRIPES, PLAN = "r", "s", "p"
"""Kinds of views."""

SLOTS_MIN, SLOTS_MAX = 2, 1024
TOPIC_MAX = 249
"""Maximum length of a topic name (org.apache.kafka.common.internals.Topic)."""
PLAN_ID_MAX = 64
"""Maximum length of the id of a plan."""

_NAME = re.compile(r"__view\.(?:([rs])(0|[1-9][0-9]*)|p([A-Za-z0-9_-]+))\.(.+)", re.DOTALL)
_LEGAL = re.compile(r"[A-Za-z0-9._-]+")
_PLAN_ID = re.compile(r"[A-Za-z0-9_-]+")


class BadViewName(ProxyError):
    """Raised for a topic with the prefix of views that is no valid name of a view. The text has the reason."""


class ViewName(NamedTuple):
    """A parsed view name."""

    kind: str
    number: int | str
    """Number of slots, or id of the plan."""
    base: str

    @property
    def topic(self) -> str:
        return f"{PREFIX}{self.kind}{self.number}.{self.base}"

    @property
    def plan(self) -> str | None:
        return self.number if isinstance(self.number, str) else None


def is_view(topic: str | None) -> bool:
    return topic is not None and topic.startswith(PREFIX)


def parse(topic: str, slots_max: int = SLOTS_MAX) -> ViewName | None:
    """Parse a topic name. Return None if it is not a view's. Raises BadViewName."""
    if not topic.startswith(PREFIX):
        return None
    if len(topic) > TOPIC_MAX:
        raise BadViewName(f"a topic's name has at most {TOPIC_MAX} characters, not {len(topic)}")
    match = _NAME.fullmatch(topic)
    if match is None:
        raise BadViewName(f"{topic!r} is no view: write {PREFIX}r<slots>.<topic>, s<slots> or p<plan>")
    kind, slots, plan, base = match.groups()
    _check_base(topic, base)
    if plan is not None:
        check_plan_id(plan)
        return ViewName(PLAN, plan, base)
    if len(slots) > len(str(SLOTS_MAX)) or not SLOTS_MIN <= int(slots) <= slots_max:
        raise BadViewName(f"{topic!r}: a view has {SLOTS_MIN} to {slots_max} slots")
    return ViewName(kind, int(slots), base)


def check_plan_id(plan: str) -> None:
    if _PLAN_ID.fullmatch(plan) is None or len(plan) > PLAN_ID_MAX:
        raise BadViewName(f"a plan is named by 1 to {PLAN_ID_MAX} of A-Z a-z 0-9 _ -, not {plan!r}")


def _check_base(topic: str, base: str) -> None:
    if base.startswith(PREFIX):
        raise BadViewName(f"{topic!r}: there are no views of views")
    if base in (".", "..") or _LEGAL.fullmatch(base) is None:
        raise BadViewName(f"{topic!r}: {base!r} is no name of a topic")
