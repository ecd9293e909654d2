"""What is known of views: which topic id is which view of which base, and which ids are no views.

Theory of operation. A topic id never names another topic, so what is known of an id needs no expiry: a view stays one
until it is deleted, a plain topic stays plain. The names, ids and partitions come from Metadata answers (whoever asked
gives them to `learn`); what a view is tied to (one base topic id, views/README.md rule 16) comes from the topic of
the proxies' notes on views and wins over what Metadata says today.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, KeysView, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from proxy.views.model.names import ViewName

if TYPE_CHECKING:
    from proxy.views.model.plans import Plan
    from proxy.views.model.slots import Cut

PLAIN_MAX = 100_000
"""Topic ids remembered as no views (about 10 MiB); past it those learned first are asked for again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A view that is ready: its topic exists with a partition for every slot, and belongs to the base as it is now."""

    name: ViewName
    topic_id: bytes
    """Of the view topic."""
    base_id: bytes
    """Of the base topic."""
    base_partitions: int
    """Of the base; the view topic has `slots` times as many."""
    cut: Cut
    """How a base partition is divided."""

    @property
    def slots(self) -> int:
        """Into how many parts a base partition is divided."""
        return self.cut.slots

    @property
    def partitions(self) -> int:
        """Of the view topic."""
        return self.base_partitions * self.slots

    def place(self, partition: int) -> tuple[int, int]:
        """Base partition and slot of a partition of the view (p-major, so that growth of the base moves nothing)."""
        return divmod(partition, self.slots)


@dataclass(frozen=True, slots=True)
class Binding:
    """The base topic that a view topic belongs to (views/README.md rule 16); for another base id it is made anew."""

    view_id: bytes
    base_id: bytes


class ViewCatalog:
    """The views and plans that this process knows."""

    def __init__(self, plain_max: int = PLAIN_MAX) -> None:
        self._views: dict[bytes, View] = {}
        self._by_name: dict[str, View] = {}
        self._bindings: dict[str, Binding] = {}
        self._plans: dict[str, Plan] = {}
        self._plain: dict[bytes, None] = {}
        self._plain_max = plain_max
        self._on_first: Callable[[], object] | None = None
        self.on_plan: Callable[[Plan], object] | None = None
        """Called with each plan that becomes known."""

    def on_first(self, call: Callable[[], object]) -> None:
        """Have this called as soon as a view is known, whenever none was before."""
        self._on_first = call

    @property
    def is_empty(self) -> bool:
        """No view is known, ready or not."""
        return not self._views and not self._bindings

    # What is ready

    def view(self, topic_id: bytes) -> View | None:
        """The view whose topic has this id."""
        return self._views.get(topic_id)

    @property
    def topic_ids(self) -> KeysView[bytes]:
        """Of the views that are known, as they are at any moment."""
        return self._views.keys()

    def named(self, topic: str) -> View | None:
        """The view whose topic is called so."""
        return self._by_name.get(topic)

    def __iter__(self) -> Iterator[View]:
        return iter(tuple(self._views.values()))

    def __len__(self) -> int:
        return len(self._views)

    def learn(self, view: View) -> None:
        """A view is ready, or has changed; an earlier topic of the same name is forgotten."""
        is_first = self.is_empty
        before = self._by_name.get(view.name.topic)
        if before is not None and before.topic_id != view.topic_id:
            del self._views[before.topic_id]
        self._views[view.topic_id] = self._by_name[view.name.topic] = view
        if is_first:
            self._tell_first()

    def forget(self, topic: str) -> None:
        """The view is not ready any more: its topic or its base has gone; harmless when it was not."""
        view = self._by_name.pop(topic, None)
        if view is not None:
            del self._views[view.topic_id]

    # What is no view

    def is_plain(self, topic_id: bytes) -> bool:
        """Whether an id is known NOT to be a view's; False says nothing: ask (`ViewServices.resolve`)."""
        return topic_id in self._plain

    @property
    def plain_ids(self) -> Mapping[bytes, None]:
        """Those ids, as they are at any moment."""
        return self._plain

    def all_plain(self, topic_ids: Iterable[bytes]) -> bool:
        """Whether each of them is."""
        return self._plain.keys() >= set(topic_ids)

    def learn_plain(self, topic_id: bytes) -> None:
        """The id belongs to a topic that is no view."""
        self._plain[topic_id] = None
        if len(self._plain) > self._plain_max:
            del self._plain[next(iter(self._plain))]

    # What is stored

    def binding(self, topic: str) -> Binding | None:
        """The base a view is tied to, as stored."""
        return self._bindings.get(topic)

    def bind(self, topic: str, binding: Binding | None) -> None:
        """Take in what is stored of a view; None: nothing any more."""
        if binding is None:
            self._bindings.pop(topic, None)
            return
        is_first = self.is_empty
        self._bindings[topic] = binding
        if is_first:
            self._tell_first()

    def _tell_first(self) -> None:
        if self._on_first is not None:
            self._on_first()

    @property
    def bound(self) -> tuple[str, ...]:
        """The views that are tied to a base, by name: those that exist, as far as is known."""
        return tuple(sorted(self._bindings))

    def plan(self, plan_id: str) -> Plan | None:
        """The stored plan of this id, if there is one."""
        return self._plans.get(plan_id)

    def add_plan(self, plan: Plan) -> bool:
        """Take in a stored plan. A plan never changes: False where another one has its name, and nothing happens."""
        is_new = plan.plan_id not in self._plans
        stands = self._plans.setdefault(plan.plan_id, plan) == plan
        if is_new and self.on_plan is not None:
            self.on_plan(plan)
        return stands

    @property
    def plans(self) -> tuple[Plan, ...]:
        """All that are known, by name."""
        return tuple(plan for _, plan in sorted(self._plans.items()))
