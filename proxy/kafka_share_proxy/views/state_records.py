"""Records of `__proxy_views`, which hold the bindings of views to bases and the stored plans: encoding and decoding.

The layouts are in schemas/internal. The same record may be written twice: the last one of a key counts, and two proxies
that find a view unbound write the same.
"""

from __future__ import annotations

from typing import TypeVar

from kafka_share_proxy.views.model.catalog import Binding, ViewCatalog
from kafka_share_proxy.views.model.plans import BadPlan, Plan
from kafka_share_proxy.wire.codec import numbered
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.messages import Message
from kafka_share_proxy.wire.errors import RemoteProtocolError

TOPIC = "__proxy_views"
PARTITIONS = 1

BINDING, PLAN = range(2)
"""Types of records: the number before a key."""
_KEY_VERSION = _VALUE_VERSION = 0

M = TypeVar("M", bound=Message)


def binding_key(topic: str) -> bytes:
    return numbered.encode(messages.ViewBindingKey(view=topic), _KEY_VERSION, BINDING)


def binding_value(binding: Binding) -> bytes:
    return numbered.encode(messages.ViewBindingValue(view_id=binding.view_id, base_id=binding.base_id), _VALUE_VERSION)


def plan_key(plan_id: str) -> bytes:
    return numbered.encode(messages.ViewPlanKey(plan_id=plan_id), _KEY_VERSION, PLAN)


def plan_value(plan: Plan) -> bytes:
    return numbered.encode(
        messages.ViewPlanValue(topic=plan.topic, starts=list(plan.starts), weights=list(plan.weights)), _VALUE_VERSION
    )


def take_in(catalog: ViewCatalog, key: bytes | None, value: bytes | None) -> None:
    """Put a stored record into the catalog.

    Raises RemoteProtocolError if the record cannot be decoded here, or would change a plan.
    """
    kind = numbered.number_in(key or b"")
    if key is None or len(key) < numbered.NUMBER_BYTES or kind not in (BINDING, PLAN):
        raise RemoteProtocolError(f"a record of type {kind} is not known here")
    if kind == BINDING:
        view = numbered.decode_body(messages.ViewBindingKey, key, _KEY_VERSION).view
        catalog.bind(view, None if value is None else _binding(value))
        return
    plan_id = numbered.decode_body(messages.ViewPlanKey, key, _KEY_VERSION).plan_id
    if value is not None and not catalog.add_plan(_plan(plan_id, value)):
        raise RemoteProtocolError(f"plan {plan_id!r} was written again with other ranges; the first ones stay")


def _binding(value: bytes) -> Binding:
    stored = numbered.decode(messages.ViewBindingValue, value, (_VALUE_VERSION,))
    return Binding(bytes(stored.view_id), bytes(stored.base_id))


def _plan(plan_id: str, value: bytes) -> Plan:
    stored = numbered.decode(messages.ViewPlanValue, value, (_VALUE_VERSION,))
    try:
        return Plan(plan_id, tuple(stored.starts), stored.topic, tuple(stored.weights))
    except BadPlan as error:
        raise RemoteProtocolError(f"plan {plan_id!r}: {error}") from None
