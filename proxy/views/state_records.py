"""The records of `__proxy_views`: which base a view belongs to, and stored plans; to bytes, back, and into a catalog.

A key begins with its record type, a value with its version (both int16), as in Kafka's own coordinator records; layouts
are in schemas/internal. Every proxy reads the topic from its start and follows it. Equal facts may be written twice:
the last record of a key counts, and two proxies that find a view unbound write the same.
"""

from __future__ import annotations

from typing import Any

from proxy.views.model.catalog import Binding, ViewCatalog
from proxy.views.model.plans import BadPlan, Plan
from proxy.wire import registry
from proxy.wire.errors import RemoteProtocolError

TOPIC = "__proxy_views"
PARTITIONS = 1

BINDING, PLAN = range(2)
"""Record types."""
_KEYS = {BINDING: "ViewBindingKey", PLAN: "ViewPlanKey"}
_VALUES = {BINDING: "ViewBindingValue", PLAN: "ViewPlanValue"}
_KEY_VERSION = _VALUE_VERSION = 0
_INT16 = 2


def binding_key(topic: str) -> bytes:
    """The key of what is stored about a view."""
    return _key(BINDING, view=topic)


def binding_value(binding: Binding) -> bytes:
    """What is stored about a view."""
    return _value(BINDING, view_id=binding.view_id, base_id=binding.base_id)


def plan_key(plan_id: str) -> bytes:
    """The key of a plan."""
    return _key(PLAN, plan_id=plan_id)


def plan_value(plan: Plan) -> bytes:
    """What is stored of a plan."""
    return _value(PLAN, topic=plan.topic, starts=list(plan.starts))


def take_in(catalog: ViewCatalog, key: bytes | None, value: bytes | None) -> None:
    """Put a record into the catalog.

    Raises:
        RemoteProtocolError: it cannot be read here, or would change a plan; the catalog is as it was.
    """
    kind = int.from_bytes((key or b"")[:_INT16], "big", signed=True)
    if key is None or len(key) < _INT16 or kind not in _KEYS:
        raise RemoteProtocolError(f"a record of type {kind} is not known here")
    named = registry.codec(_KEYS[kind], _KEY_VERSION).decode(key, _INT16)
    if kind == BINDING:
        catalog.bind(named.view, None if value is None else _binding(_read(kind, value)))
    elif value is not None and not catalog.add_plan(_plan(named.plan_id, _read(kind, value))):
        raise RemoteProtocolError(f"plan {named.plan_id!r} was written again with other ranges; the first ones stay")


def _binding(stored: Any) -> Binding:
    return Binding(bytes(stored.view_id), bytes(stored.base_id))


def _plan(plan_id: str, stored: Any) -> Plan:
    try:
        return Plan(plan_id, tuple(stored.starts), stored.topic)
    except BadPlan as error:
        raise RemoteProtocolError(f"plan {plan_id!r}: {error}") from None


def _key(kind: int, **fields: Any) -> bytes:
    body = registry.codec(_KEYS[kind], _KEY_VERSION).encode(registry.message(_KEYS[kind])(**fields))
    return kind.to_bytes(_INT16, "big") + body


def _value(kind: int, **fields: Any) -> bytes:
    body = registry.codec(_VALUES[kind], _VALUE_VERSION).encode(registry.message(_VALUES[kind])(**fields))
    return _VALUE_VERSION.to_bytes(_INT16, "big") + body


def _read(kind: int, value: bytes) -> Any:
    version = int.from_bytes(value[:_INT16], "big", signed=True)
    if version != _VALUE_VERSION or len(value) < _INT16:
        raise RemoteProtocolError(f"{_VALUES[kind]} of version {version} is not known here")
    return registry.codec(_VALUES[kind], version).decode(value, _INT16)
