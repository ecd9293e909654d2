"""The sample file of settings, written from their models: every setting with its default and its help text.

`python -m kafka_share_proxy.app.settings.sample_settings > deploy/settings.yaml` writes it, and a test compares. A
setting is declared once, in a model: its type and bounds, its default, and the text below it.
"""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel

from kafka_share_proxy.app.settings.config import Config
from kafka_share_proxy.feature.settings import Section
from kafka_share_proxy.forwarding.limits import Limits

WIDTH = 120
HEAD = """\
# Every setting with its default. A setting that is left out, or has no value, keeps its default.
# The same keys as environment variables, with two underscores for each level: KSP_UPSTREAM__BOOTSTRAP, KSP_LOG_LEVEL,
# KSP_LIMITS__CONNECTIONS, ... and on the command line: --set upstream.metadata_interval_s=10
# Written by python -m kafka_share_proxy.app.settings.sample_settings from the models of the settings.
"""


def render() -> str:
    """Return the whole file."""
    return f"{HEAD}\n" + "\n".join(_section(Config.model_validate({}), 0)) + "\n"


def help_texts(model: type[object]) -> dict[str, str]:
    """Return the text below each attribute of a class and of the classes that it extends, in one line each."""
    found: dict[str, str] = {}
    for each in reversed(model.__mro__):
        if each not in (object, BaseModel):
            found |= _own_help_texts(each)
    return found


def _own_help_texts(model: type[object]) -> dict[str, str]:
    (declared,) = ast.parse(textwrap.dedent(inspect.getsource(model))).body
    found: dict[str, str] = {}
    name = ""
    for statement in declared.body if isinstance(declared, ast.ClassDef) else ():
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            name = statement.target.id
        elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant) and name:
            found.setdefault(name, " ".join(str(statement.value.value).split()))
    return found


def _section(section: BaseModel, depth: int) -> Iterator[str]:
    helps, defaults = help_texts(type(section)), section.model_dump(mode="json")
    for name in type(section).model_fields:
        value = getattr(section, name)
        if isinstance(value, BaseModel):
            yield from _setting(name, None, _first_sentence(type(value)), depth)
            yield from _section(value, depth + 1)
        elif (inner := _named_values(section, name)) is not None:
            yield from _setting(name, None, helps[name], depth)
            for each, (default, text) in inner.items():
                yield from _setting(each, default, text, depth + 1)
        else:
            yield from _setting(name, defaults[name], _with_options(section, name, helps[name]), depth)
        if not depth and isinstance(value, BaseModel | dict):
            yield ""


def _named_values(section: BaseModel, name: str) -> Mapping[str, tuple[Any, str]] | None:
    """Return default and help text of values that a class other than a model declares."""
    if isinstance(section, Config) and name == "limits":
        helps = help_texts(Limits)
        return {each: (default, helps[each]) for each, default in asdict(Limits()).items()}
    return section.named_values(name) if isinstance(section, Section) else None


def _with_options(section: BaseModel, name: str, text: str) -> str:
    """Add the values that a setting may have, if the text does not name them all."""
    kinds = [type(section).model_fields[name].annotation]
    options: list[str] = []
    for kind in kinds:
        if get_origin(kind) is Literal:
            options += get_args(kind)
        elif get_origin(kind) in (Union, UnionType):
            kinds += get_args(kind)
    return text if all(option in text for option in options) else f"{text} One of {', '.join(options)}."


def _first_sentence(model: type[BaseModel]) -> str:
    return (inspect.getdoc(model) or "").split("\n")[0]


def _setting(name: str, value: object, text: str, depth: int) -> Iterator[str]:
    """Yield the lines of one setting: the text next to the value if it fits, else above."""
    indent = "  " * depth
    line = f"{indent}{name}:{_written(value)}"
    if not text:
        yield line
    elif len(f"{line:<29} # {text}") <= WIDTH:
        yield f"{line:<29} # {text}"
    else:
        yield from textwrap.wrap(text, WIDTH, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}# ")
        yield line


def _written(value: object) -> str:
    if value is None or value in ([], {}, ()):
        return ""
    if isinstance(value, bool):
        return f" {str(value).lower()}"
    if isinstance(value, float) and value.is_integer():
        return f" {int(value)}"
    return ' "*"' if value == "*" else f" {value}"


if __name__ == "__main__":
    sys.stdout.write(render())
