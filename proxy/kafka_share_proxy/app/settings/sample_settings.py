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
from dataclasses import asdict, dataclass
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
    return f"{HEAD}\n" + "\n".join(_lines(Config.model_validate({}))) + "\n"


def help_texts(model: type[object]) -> dict[str, str]:
    """Return the text below each attribute of a class and of the classes that it extends, in one line each."""
    texts: dict[str, str] = {}
    for each in reversed(model.__mro__):
        if each not in (object, BaseModel):
            texts |= _own_help_texts(each)
    return texts


def _own_help_texts(model: type[object]) -> dict[str, str]:
    (declared,) = ast.parse(textwrap.dedent(inspect.getsource(model))).body
    texts: dict[str, str] = {}
    name = ""
    for statement in declared.body if isinstance(declared, ast.ClassDef) else ():
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            name = statement.target.id
        elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant) and name:
            texts.setdefault(name, " ".join(str(statement.value.value).split()))
    return texts


@dataclass(frozen=True, slots=True)
class Listed:
    """One setting, or the section that the following settings are in."""

    path: tuple[str, ...]
    """Names of its sections, and its own, which may contain dots."""
    value: str
    """Default in YAML. Empty: none."""
    text: str
    is_section: bool

    @property
    def name(self) -> str:
        """Dotted key, as `--set` accepts it."""
        return ".".join(self.path)


def listed(section: BaseModel, path: tuple[str, ...] = ()) -> Iterator[Listed]:
    """Yield all settings with their defaults and help texts, in the order of the sample file."""
    helps, defaults = help_texts(type(section)), section.model_dump(mode="json")
    for name in type(section).model_fields:
        value, own = getattr(section, name), (*path, name)
        if isinstance(value, BaseModel):
            yield Listed(own, "", _first_sentence(type(value)), is_section=True)
            yield from listed(value, own)
        elif (inner := _named_values(section, name)) is not None:
            yield Listed(own, "", helps[name], is_section=True)
            for each, (default, text) in inner.items():
                yield Listed((*own, each), _written(default), text, is_section=False)
        else:
            text = _with_options(section, name, helps[name])
            yield Listed(own, _written(defaults[name]), text, is_section=False)


def _lines(config: Config) -> Iterator[str]:
    """Yield the lines of the sample file, with an empty one after each section."""
    was_in_section = False
    for each in listed(config):
        is_top = len(each.path) == 1
        if is_top and was_in_section:
            yield ""
        was_in_section = (was_in_section and not is_top) or each.is_section
        yield from _setting(each)


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


def _setting(setting: Listed) -> Iterator[str]:
    """Yield the lines of one setting: the text next to the value if it fits, else above."""
    indent, text = "  " * (len(setting.path) - 1), setting.text
    line = f"{indent}{setting.path[-1]}: {setting.value}".rstrip()
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
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return '"*"' if value == "*" else str(value)


if __name__ == "__main__":
    sys.stdout.write(render())
