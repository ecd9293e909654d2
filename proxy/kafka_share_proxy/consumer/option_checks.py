"""Checks of options: types by annotation, ranges by the metadata of a field. Errors name the option and its value."""

from __future__ import annotations

import math
import types
from collections.abc import Mapping, Sequence
from dataclasses import Field, field, fields, is_dataclass
from functools import cache
from typing import Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

INT32_MAX = (1 << 31) - 1
SECONDS_MAX = INT32_MAX / 1000
"""Longest time that requests can carry, in milliseconds as int32."""

T = TypeVar("T")


class Range(NamedTuple):
    """Values that an option accepts."""

    above: float = -math.inf
    least: float = -math.inf
    most: float = math.inf

    def wrong(self, value: float) -> str:
        """Return what is wrong with a value. Empty if it is accepted."""
        if not value > self.above:
            return f"must be above {self.above:g}"
        if not value >= self.least:
            return f"must be {self.least:g} or more"
        return f"must be at most {self.most:.0f}" if value > self.most else ""


ABOVE_0 = Range(above=0, most=INT32_MAX)
FROM_0 = Range(least=0, most=INT32_MAX)
TIME_ABOVE_0 = Range(above=0, most=SECONDS_MAX)
TIME_FROM_0 = Range(least=0, most=SECONDS_MAX)


def option(default: T, kafka: str, accepted: Range) -> T:
    """Declare an option.

    `kafka`: name of the setting in Kafka's clients, or the own name. None is accepted where the type allows it.
    """
    declared: Any = field(default=default, metadata={"kafka": kafka, "accepted": accepted})
    return declared  # type: ignore[no-any-return]  # as dataclasses.field is typed


def mistakes(options: Any) -> list[str]:
    """Return an error text for each option of a wrong type or out of range."""
    problems = []
    kind: Any = type(options)
    for each, hint in _options(kind):
        value = getattr(options, each.name)
        if not matches(value, hint):
            problems.append(wrong_type(each.name, value, hint))
        elif (accepted := each.metadata.get("accepted")) is not None and value is not None:
            wrong = accepted.wrong(value)
            if wrong:
                kafka = each.metadata["kafka"]
                problems.append(f"{each.name}={value!r}: {wrong if kafka == each.name else f'{kafka} {wrong}'}")
    return problems


def types_hold(options: Any) -> bool:
    """True if all types hold: options can be compared then."""
    kind: Any = type(options)
    return all(matches(getattr(options, each.name), hint) for each, hint in _options(kind))


def check_types(values: Mapping[str, tuple[object, Any]]) -> list[str]:
    """Return an error text for each value of a wrong type. `values` is name -> (value, type)."""
    return [wrong_type(name, value, hint) for name, (value, hint) in values.items() if not matches(value, hint)]


def wrong_type(name: str, value: object, hint: Any) -> str:
    return f"{name}={value!r}: {type_text(hint)} is needed, this is {_with_article(type(value).__name__)}"


def matches(value: object, hint: Any) -> bool:
    """Check a type. An int is also a float; a bool and NaN are no numbers."""
    origin, inner = get_origin(hint), get_args(hint)
    if hint is Any:
        return True
    if hint is None or hint is type(None):
        return value is None
    if origin is Literal:
        return isinstance(value, str)  # which one: `literal_values`
    if origin in (Union, types.UnionType):
        return any(matches(value, each) for each in inner)
    if origin in (tuple, Sequence):
        is_list = isinstance(value, Sequence) and not isinstance(value, str | bytes)
        return is_list and all(matches(each, inner[0]) for each in value)  # type: ignore[attr-defined]
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool) and not math.isnan(value)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return callable(value) if hint is callable else isinstance(value, hint)


def type_text(hint: Any) -> str:
    origin, inner = get_origin(hint), get_args(hint)
    if hint is None or hint is type(None):
        return "None"
    if origin is Literal:
        return "a str"
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(map(type_text, inner)))
    if origin in (tuple, Sequence):
        return "a list of names"
    if hint is callable:
        return "a function"
    words = {float: "a number", int: "a whole number", bool: "True or False", str: "a str"}
    return words.get(hint, _with_article(hint.__name__))


def literal_values(hint: Any) -> tuple[str, ...]:
    return tuple(get_args(hint))


def names(kind: type) -> tuple[str, ...]:
    return tuple(each.name for each in fields(kind) if each.init)


@cache
def _options(kind: type) -> tuple[tuple[Field[Any], Any], ...]:
    hints = get_type_hints(kind, _names_in_scope(kind))
    return tuple((each, hints[each.name]) for each in fields(kind) if each.init)


def _names_in_scope(kind: type) -> dict[str, Any]:
    """Return globals of the defining modules; `__module__` may be the public name."""
    bases = [base for base in reversed(kind.__mro__) if is_dataclass(base)]
    return {name: value for base in bases for name, value in vars(base)["__init__"].__globals__.items()}


def _with_article(name: str) -> str:
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"
