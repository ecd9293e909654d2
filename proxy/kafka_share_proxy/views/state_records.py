"""Records of `__proxy_views`, which hold the bindings of views to bases and the stored plans: encoding and decoding.

The layouts are in schemas/internal. The same record may be written twice: the last one of a key counts, and two proxies
that find a view unbound write the same.
"""

from __future__ import annotations

from typing import TypeVar

from kafka_share_proxy.views.model.catalog import Binding, ViewCatalog
from kafka_share_proxy.views.model.plans import BadPlan, Plan
from kafka_share_proxy.wire.definitions import messages, registry
from kafka_share_proxy.wire.definitions.messages import Message
from kafka_share_proxy.wire.errors import RemoteProtocolError

TOPIC = "__proxy_views"
PARTITIONS = 1

BINDING, PLAN = range(2)
_KEY_VERSION = _VALUE_VERSION = 0
_INT16 = 2

M = TypeVar("M", bound=Message)


def binding_key(topic: str) -> bytes:
    return _key(BINDING, messages.ViewBindingKey(view=topic))


def binding_value(binding: Binding) -> bytes:
    return _value(messages.ViewBindingValue(view_id=binding.view_id, base_id=binding.base_id))


def plan_key(plan_id: str) -> bytes:
    return _key(PLAN, messages.ViewPlanKey(plan_id=plan_id))


def plan_value(plan: Plan) -> bytes:
    return _value(messages.ViewPlanValue(topic=plan.topic, starts=list(plan.starts), weights=list(plan.weights)))


def take_in(catalog: ViewCatalog, key: bytes | None, value: bytes | None) -> None:
    """Raises RemoteProtocolError if the record cannot be decoded here, or would change a plan."""
    kind = int.from_bytes((key or b"")[:_INT16], "big", signed=True)
    if key is None or len(key) < _INT16 or kind not in (BINDING, PLAN):
        raise RemoteProtocolError(f"a record of type {kind} is not known here")
    if kind == BINDING:
        view = registry.codec_of(messages.ViewBindingKey, _KEY_VERSION).decode(key, _INT16).view
        catalog.bind(view, None if value is None else _binding(value))
        return
    plan_id = registry.codec_of(messages.ViewPlanKey, _KEY_VERSION).decode(key, _INT16).plan_id
    if value is not None and not catalog.add_plan(_plan(plan_id, value)):
        raise RemoteProtocolError(f"plan {plan_id!r} was written again with other ranges; the first ones stay")


def _binding(value: bytes) -> Binding:
    stored = _read(messages.ViewBindingValue, value)
    return Binding(bytes(stored.view_id), bytes(stored.base_id))


def _plan(plan_id: str, value: bytes) -> Plan:
    stored = _read(messages.ViewPlanValue, value)
    try:
        return Plan(plan_id, tuple(stored.starts), stored.topic, tuple(stored.weights))
    except BadPlan as error:
        raise RemoteProtocolError(f"plan {plan_id!r}: {error}") from None


def _key(kind: int, message: Message) -> bytes:
    body = registry.codec_of(type(message), _KEY_VERSION).encode(message)
    return kind.to_bytes(_INT16, "big") + body


def _value(message: Message) -> bytes:
    body = registry.codec_of(type(message), _VALUE_VERSION).encode(message)
    return _VALUE_VERSION.to_bytes(_INT16, "big") + body


def _read(message: type[M], value: bytes) -> M:
    version = int.from_bytes(value[:_INT16], "big", signed=True)
    if version != _VALUE_VERSION or len(value) < _INT16:
        raise RemoteProtocolError(f"{message.__name__} of version {version} is not known here")
    return registry.codec_of(message, version).decode(value, _INT16)
