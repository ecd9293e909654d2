"""Messages as JSON values for a trace, without contents of records and without secrets.

Every field of bytes is described by its size. That covers SASL tokens, SCRAM credentials, delegation tokens, and
records. What is left are values of settings, which are hidden unless they belong to a topic or a group.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from typing import Any

from kafka_share_proxy.wire.definitions.messages import Message
from kafka_share_proxy.wire.definitions.specs import FieldSpec
from kafka_share_proxy.wire.errors import RemoteProtocolError
from kafka_share_proxy.wire.records.batches import Batch, split_complete

TEXT_MAX = 500
"""Maximum characters of a text."""
BATCHES_MAX = 20
"""Maximum number of batches described of the records of one partition."""
HIDDEN = "[hidden]"
SECRET_WORDS = ("password", "secret", "token", "credential", "jaas", "key")
"""Parts of the names of settings whose values are hidden for topics and groups too."""
_TOPIC, _GROUP = 2, 32
"""Resource types (ConfigResource.Type) whose settings hold no secrets."""
_COMPRESSION = ("none", "gzip", "snappy", "lz4", "zstd")


def described(message: Message, version: int) -> dict[str, Any]:
    """Return the fields that the message has in this version, by their names in Kafka's definitions."""
    return _struct(message, version, hides=False)


def _struct(message: Message, version: int, *, hides: bool) -> dict[str, Any]:
    resource_type = getattr(message, "resource_type", None)
    if resource_type is not None:
        hides = resource_type not in (_TOPIC, _GROUP)
    result = {}
    for field in message.SPEC.fields:
        if version in field.versions:
            is_hidden = _is_secret(message, field, hides=hides)
            value = HIDDEN if is_hidden else _value(field, getattr(message, field.attribute), version, hides=hides)
            result[field.name] = value
    return result


def _is_secret(message: Message, field: FieldSpec, *, hides: bool) -> bool:
    if field.type != "string" or field.is_array or getattr(message, field.attribute) is None:
        return False
    if field.name == "Value":
        name = str(getattr(message, "name", "")).lower()
        return hides or any(word in name for word in SECRET_WORDS)
    return hides and field.name == "ErrorMessage"  # may quote the value


def _value(field: FieldSpec, value: Any, version: int, *, hides: bool) -> Any:
    if field.is_array and value is not None:
        return [_element(field, each, version, hides=hides) for each in value]
    return _element(field, value, version, hides=hides)


def _element(field: FieldSpec, value: Any, version: int, *, hides: bool) -> Any:
    if isinstance(value, Message):
        return _struct(value, version, hides=hides)
    if value is None:
        return None
    if field.type == "records":
        return _records(value)
    if field.type == "uuid":
        return urlsafe_b64encode(value).rstrip(b"=").decode()
    if isinstance(value, str):
        return value if len(value) <= TEXT_MAX else f"{value[:TEXT_MAX]}... ({len(value)} characters)"
    if isinstance(value, bool | int):
        return value
    return str(value) if isinstance(value, float) else f"[{len(value)} bytes]"


def _records(data: Any) -> dict[str, Any]:
    """Return what the headers of the batches say."""
    result: dict[str, Any] = {"bytes": len(data)}
    try:
        table, _ = split_complete(memoryview(bytes(data)))
    except RemoteProtocolError as error:
        return result | {"unreadable": str(error)}
    result["batches"] = [_batch(batch) for batch in table[:BATCHES_MAX]]
    if len(table) > BATCHES_MAX:
        result["batches_left_out"] = len(table) - BATCHES_MAX
    return result


def _batch(batch: Batch) -> dict[str, Any]:
    codec = batch.compression
    facts: dict[str, Any] = {
        "offset": batch.base_offset,
        "last_offset": batch.last_offset,
        "records": batch.records_count,
        "bytes": batch.size,
        "compression": _COMPRESSION[codec] if codec < len(_COMPRESSION) else codec,
    }
    if batch.producer_id >= 0:
        facts |= {"producer_id": batch.producer_id, "transactional": batch.is_transactional}
    return facts | ({"control": True} if batch.is_control else {})
