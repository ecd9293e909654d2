"""Messages from keyword arguments, with nested structures as dicts."""

from __future__ import annotations

from typing import Any

from kafka_share_proxy.wire.definitions import registry

KEYS = {name: key for key, name in registry.API_KEYS.items()}
"""API key by name, without "Request"."""


def build(api: str, **values: Any) -> Any:
    """Return the request of an API. Raises TypeError for a field that the definition does not have."""
    root = registry.message(f"{api}Request")
    return _build(root, root, values)


def _build(root: Any, struct_class: Any, values: dict[str, Any]) -> Any:
    structs = {field.attribute: field.struct for field in struct_class.SPEC.fields if field.struct is not None}
    return struct_class(**{name: _value(root, structs.get(name), value) for name, value in values.items()})


def _value(root: Any, struct: Any, value: Any) -> Any:
    if struct is None or value is None:
        return value
    nested = getattr(root, struct.name)
    if isinstance(value, dict):
        return _build(root, nested, value)
    return [_build(root, nested, each) if isinstance(each, dict) else each for each in value]
