"""Slotted classes of the messages, built from their definitions (wire/README.md rules 3 and 5).

Nested structures are attributes of the message class under their schema name. `unknown_tags` holds the unknown tagged
fields.
"""

from __future__ import annotations

from typing import Any, ClassVar, Generic, TypeVar, dataclass_transform

from kafka_share_proxy.wire.codec.primitives import Tags
from kafka_share_proxy.wire.definitions.specs import FieldSpec, MessageSpec, StructSpec, load

R = TypeVar("R")


@dataclass_transform(kw_only_default=True)
class Message:
    """Base of all generated classes, with comparison and repr by fields."""

    __slots__ = ("unknown_tags",)
    FIELDS: ClassVar[tuple[str, ...]] = ()
    SPEC: ClassVar[StructSpec]
    unknown_tags: Tags

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self.unknown_tags == other.unknown_tags and all(
            getattr(self, name) == getattr(other, name) for name in self.FIELDS
        )

    __hash__ = None  # type: ignore[assignment]  # mutable

    def __repr__(self) -> str:
        shown = [f"{name}={_shorten(getattr(self, name, '?'))}" for name in self.FIELDS]
        if self.unknown_tags:
            shown.append(f"unknown_tags={self.unknown_tags!r}")
        return f"{type(self).__name__}({', '.join(shown)})"


class RequestMessage(Message, Generic[R]):
    """Base of the requests, generic by the class of the response."""

    __slots__ = ()


M = TypeVar("M", bound=Message)


def copied(message: M, **changed: object) -> M:
    """Return a shallow copy of a message with changed fields, without unknown tags."""
    fields = {name: getattr(message, name) for name in message.FIELDS}
    fields.update(changed)
    return type(message)(**fields)


_CLASSES: dict[str, type[Any]] = {}
"""setdefault is atomic: one class per message, even if two threads build the same one."""


def message_class(name: str) -> type[Any]:
    """Raises SchemaError."""
    cached = _CLASSES.get(name)
    return cached if cached is not None else _CLASSES.setdefault(name, build(load(name)))


def build(spec: MessageSpec) -> type[Any]:
    classes: dict[str, type[Any]] = {}
    for struct in (*spec.structs.values(), spec.root):
        base = RequestMessage if struct is spec.root and spec.type == "request" else Message
        classes[struct.name] = _struct_class(struct, classes, base)
    root = classes.pop(spec.name)
    for name, nested in classes.items():
        nested.__qualname__ = f"{spec.name}.{name}"
        setattr(root, name, nested)
    return root


def default_source(field: FieldSpec) -> str:
    """Return source, where a structure's class is `C_<name>`."""
    if field.default == "struct" and field.struct is not None and not field.is_array:
        return f"C_{field.struct.name}()"
    return repr(field.default)


def _struct_class(struct: StructSpec, classes: dict[str, type[Any]], base: type[Message]) -> type[Any]:
    attributes = tuple(field.attribute for field in struct.fields)
    namespace: dict[str, Any] = {f"C_{name}": nested for name, nested in classes.items()}
    namespace["_UNSET"] = object()
    exec(_init_source(struct), namespace)  # noqa: S102  # from our own definitions, names checked by the parser
    body = {
        "__slots__": attributes,
        "__init__": namespace["__init__"],
        "__module__": "kafka_share_proxy.wire.definitions.messages",
        "__doc__": f"{struct.name} of Kafka's message definitions, all versions.",
        "FIELDS": attributes,
        "SPEC": struct,
    }
    return type(struct.name, (base,), body)


def _init_source(struct: StructSpec) -> str:
    """Create mutable defaults anew for every object."""
    parameters, lines = ["self", "*"], []
    for field in struct.fields:
        fresh = field.is_array or field.type == "struct"
        if fresh and field.default is not None:
            parameters.append(f"{field.attribute}=_UNSET")
            value = f"{default_source(field)} if {field.attribute} is _UNSET else {field.attribute}"
            lines.append(f"    self.{field.attribute} = {value}")
        else:
            parameters.append(f"{field.attribute}={default_source(field)}")
            lines.append(f"    self.{field.attribute} = {field.attribute}")
    parameters.append("unknown_tags=()")
    lines.append("    self.unknown_tags = unknown_tags")
    return f"def __init__({', '.join(parameters)}):\n" + "\n".join(lines) + "\n"


def _shorten(value: object) -> str:
    if isinstance(value, bytes | bytearray | memoryview):
        return repr(bytes(value)) if len(value) <= 32 else f"<{len(value)} bytes>"
    return repr(value)
