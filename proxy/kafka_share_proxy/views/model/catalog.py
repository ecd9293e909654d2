"""Catalog of views: which topic id is which view of which base, and which ids are plain topics.

A topic id never refers to another topic later, so entries need no expiry. The stored binding of a view (views/README.md
rule 16) has precedence over Metadata.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, KeysView, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafka_share_proxy.views.model.names import ViewName

if TYPE_CHECKING:
    from kafka_share_proxy.views.model.plans import Plan
    from kafka_share_proxy.views.model.slots import Cut

PLAIN_MAX = 100_000
"""Maximum number of ids of plain topics, about 10 MiB. Beyond it the oldest are looked up again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A view whose topic has a partition for every slot, and belongs to the current base."""

    name: ViewName
    topic_id: bytes
    base_id: bytes
    base_partitions: int
    cut: Cut

    @property
    def slots(self) -> int:
        return self.cut.slots

    @property
    def partitions(self) -> int:
        return self.base_partitions * self.slots

    def place(self, partition: int) -> tuple[int, int]:
        """Return base partition and slot (views/README.md rule 3)."""
        return divmod(partition, self.slots)


@dataclass(frozen=True, slots=True)
class Binding:
    """Base topic that a view topic belongs to (views/README.md rule 16)."""

    view_id: bytes
    base_id: bytes


class ViewCatalog:
    """The views and plans known to this process."""

    def __init__(self, plain_max: int = PLAIN_MAX, on_plan: Callable[[Plan], object] | None = None) -> None:
        self._views: dict[bytes, View] = {}
        self._by_name: dict[str, View] = {}
        self._bindings: dict[str, Binding] = {}
        self._plans: dict[str, Plan] = {}
        self._plain: dict[bytes, None] = {}
        self._plain_max = plain_max
        self._is_shown = False
        """True once a view without a topic was shown."""
        self._was_empty = True
        self._on_change: list[Callable[[], object]] = []
        self.on_plan = on_plan

    def on_change(self, callback: Callable[[], object]) -> None:
        """Call this whenever `is_empty` has changed."""
        self._on_change.append(callback)

    @property
    def is_empty(self) -> bool:
        """True if no client can know a view."""
        return not self._views and not self._bindings and not self._is_shown

    @property
    def count(self) -> int:
        """Number of known views, which `views.views_max` limits."""
        return max(len(self._views), len(self._bindings))

    # Views that are ready

    def view(self, topic_id: bytes) -> View | None:
        """Return the view with this topic id."""
        return self._views.get(topic_id)

    @property
    def topic_ids(self) -> KeysView[bytes]:
        return self._views.keys()

    def by_name(self, topic: str) -> View | None:
        return self._by_name.get(topic)

    def __iter__(self) -> Iterator[View]:
        return iter(tuple(self._views.values()))

    def __len__(self) -> int:
        return len(self._views)

    def learn(self, view: View) -> None:
        """Add a view, or replace the one of the same name."""
        before = self._by_name.get(view.name.topic)
        if before is not None and before.topic_id != view.topic_id:
            del self._views[before.topic_id]
        self._views[view.topic_id] = self._by_name[view.name.topic] = view
        self._report_change()

    def note_shown(self) -> None:
        """Note that a client may name a view without a topic."""
        self._is_shown = True
        self._report_change()

    def forget(self, topic: str) -> None:
        view = self._by_name.pop(topic, None)
        if view is not None:
            del self._views[view.topic_id]
            self._report_change()

    def _report_change(self) -> None:
        if self.is_empty != self._was_empty:
            self._was_empty = self.is_empty
            for callback in self._on_change:
                callback()

    # Plain topics

    def is_plain(self, topic_id: bytes) -> bool:
        """Return True if an id is known not to be a view's. False means unknown; see `ViewCreation.resolve`."""
        return topic_id in self._plain

    @property
    def plain_ids(self) -> Mapping[bytes, None]:
        return self._plain

    def learn_plain(self, topic_id: bytes) -> None:
        self._plain[topic_id] = None
        if len(self._plain) > self._plain_max:
            del self._plain[next(iter(self._plain))]

    # Stored state

    def binding(self, topic: str) -> Binding | None:
        return self._bindings.get(topic)

    def bind(self, topic: str, binding: Binding | None) -> None:
        if binding is None:
            self._bindings.pop(topic, None)
        else:
            self._bindings[topic] = binding
        self._report_change()

    @property
    def bound(self) -> tuple[str, ...]:
        """Names of the views with a stored binding."""
        return tuple(sorted(self._bindings))

    def plan(self, plan_id: str) -> Plan | None:
        return self._plans.get(plan_id)

    def add_plan(self, plan: Plan) -> bool:
        """Return False, and change nothing, if a plan with other ranges has its name."""
        is_new = plan.plan_id not in self._plans
        has_same_ranges = self._plans.setdefault(plan.plan_id, plan) == plan
        if has_same_ranges and plan.weights:
            self._plans[plan.plan_id] = plan
        if is_new and self.on_plan is not None:
            self.on_plan(plan)
        return has_same_ranges

    @property
    def plans(self) -> tuple[Plan, ...]:
        return tuple(plan for _, plan in sorted(self._plans.items()))
