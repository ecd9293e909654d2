"""The reference, made from the program when the documentation is built: settings, metrics, log events, commands.

`GENERATED` has a function for each comment `<!-- generated: NAME -->` of a page. `python docs/reference.py NAME` prints
what replaces it.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import kafka_share_proxy

PACKAGE = Path(kafka_share_proxy.__file__).parent
RECORDER = Path(__file__).with_name("recorded_metrics.py")
RECORD_S = 120
DECLARING = ("log_events", "observe")
"""Modules that declare the levels of events."""


def table(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a Markdown table."""
    names = list(columns)
    lines = [names, ["---"] * len(names), *([_cell(value) for value in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def code(text: object) -> str:
    return f"`{text}`" if str(text) else ""


# Settings


def settings() -> str:
    """Return a section with a table for each section of the settings."""
    from kafka_share_proxy.app.settings.config import Config
    from kafka_share_proxy.app.settings.sample_settings import listed

    sections: dict[str, list[Any]] = defaultdict(list)
    texts: dict[str, str] = {}
    for each in listed(Config.model_validate({})):
        if each.is_section:
            texts[each.name] = each.text
        else:
            sections[each.name.rpartition(".")[0] if "." in each.name else ""].append(each)
    pages = []
    for section, found in _by_top_level(sections).items():
        heading = f"## {section}\n\n{texts.get(section, '')}\n" if section else "## Top level\n"
        rows = [(code(each.name), code(each.value), _applied(each.name), each.text) for each in found]
        pages.append(f"{heading}\n{table(('setting', 'default', 'live', 'meaning'), rows)}")
    return "\n".join(pages)


def _by_top_level(sections: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
    merged: dict[str, list[Any]] = defaultdict(list, {"": []})
    for section, found in sections.items():
        merged[section.partition(".")[0]] += found
    return merged


def _applied(name: str) -> str:
    """Return "yes" if a reload applies the setting."""
    from kafka_share_proxy.app.settings.live_settings import LIVE, SECRET_FILES, TLS_FILES, TLS_SECTIONS

    section, _, key = name.rpartition(".")
    is_live = name in LIVE or name in SECRET_FILES or (section in TLS_SECTIONS and key in TLS_FILES)
    return "yes" if is_live else ""


# Metrics


def recorded_metrics() -> list[dict[str, Any]]:
    """Return name, kind, help text and labels of every metric that a proxy with all features adds."""
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder, "metrics.json")
        subprocess.run([sys.executable, str(RECORDER), str(found)], check=True, timeout=RECORD_S, cwd=folder)
        metrics: list[dict[str, Any]] = json.loads(found.read_text())
    return metrics


def metrics() -> str:
    """Return a table of all metrics."""
    rows = [
        (code(_series(each)), each["kind"], ", ".join(map(code, each["labels"])), each["help"])
        for each in sorted(recorded_metrics(), key=lambda each: str(each["name"]))
    ]
    return table(("metric", "kind", "labels", "meaning"), rows)


def _series(metric: Mapping[str, Any]) -> str:
    return f"ksp_{metric['name']}" + ("_total" if metric["kind"] == "counter" else "")


# Log events


def log_events() -> str:
    """Return a table of all log events, those that need attention first."""
    from kafka_share_proxy.app.observing.observe import LEVELS
    from kafka_share_proxy.app.serving.features import event_levels

    names = {number: name for name, number in LEVELS.items()}
    sites = _sites(event_levels())
    rows = [
        (code(event), names[level], ", ".join(map(code, sorted(sites[event].fields))), _rooms(sites[event].modules))
        for event, level in sorted(event_levels().items(), key=lambda item: (-item[1], item[0]))
    ]
    return table(("event", "level", "fields", "logged by"), rows)


class _Sites:
    """Source of one log event."""

    def __init__(self) -> None:
        self.fields: set[str] = set()
        self.modules: set[str] = set()


def _rooms(modules: Iterable[str]) -> str:
    """Return the modules that log an event. Events of states have names that descriptions make."""
    return ", ".join(code(module) for module in sorted(modules)) or code("durable/")


def _sites(events: Iterable[str]) -> dict[str, _Sites]:
    """Return the calls that name an event, itself or by a constant, with their keyword arguments."""
    known = set(events)
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(PACKAGE.rglob("*.py"))}
    trees = _parsed(texts, known)
    constants = {path.stem: named for path, tree in trees.items() if (named := dict(_constants(tree, known)))}
    trees |= _parsed({path: text for path, text in texts.items() if path not in trees}, constants)
    found: dict[str, _Sites] = defaultdict(_Sites)
    for path, tree in trees.items():
        nodes = list(ast.walk(tree))
        own = constants.get(path.stem, {}) | dict(_imported(nodes, constants))
        for call in (node for node in nodes if isinstance(node, ast.Call)):
            for event in _events_in(call, known, own, constants):
                found[event].fields |= {each.arg for each in call.keywords if each.arg}
                found[event].modules.add(path.relative_to(PACKAGE).as_posix())
        for event in known & set(_mentions(nodes, constants)) if path.stem not in DECLARING else ():
            found[event].modules.add(path.relative_to(PACKAGE).as_posix())
    return found


def _parsed(texts: Mapping[Path, str], words: Iterable[str]) -> dict[Path, ast.Module]:
    """Return the trees of the modules that contain one of these words."""
    return {path: ast.parse(text) for path, text in texts.items() if any(word in text for word in words)}


def _mentions(nodes: Iterable[ast.AST], constants: Constants) -> Iterator[str]:
    """Yield the strings of a module and the constants of others, for events that a table or a variable names."""
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            yield constants.get(node.value.id, {}).get(node.attr, "")


Constants = Mapping[str, Mapping[str, str]]
"""Module, by its last name -> constant -> event."""


def _constants(tree: ast.Module, known: set[str]) -> Iterator[tuple[str, str]]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and node.value.value in known:
            yield from ((target.id, str(node.value.value)) for target in node.targets if isinstance(target, ast.Name))


def _imported(nodes: Iterable[ast.AST], constants: Constants) -> Iterator[tuple[str, str]]:
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module:
            of_module = constants.get(node.module.rpartition(".")[2], {})
            yield from ((alias.name, of_module[alias.name]) for alias in node.names if alias.name in of_module)


def _events_in(call: ast.Call, known: set[str], own: Mapping[str, str], constants: Constants) -> Iterator[str]:
    for argument in call.args[:2]:
        for node in ast.walk(argument) if isinstance(argument, ast.IfExp) else (argument,):
            if isinstance(node, ast.Constant) and node.value in known:
                yield str(node.value)
            elif isinstance(node, ast.Name) and node.id in own:
                yield own[node.id]
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                event = constants.get(node.value.id, {}).get(node.attr)
                yield from () if event is None else (event,)


# Commands


def commands() -> str:
    """Return a section for each command, with its help text and options."""
    from kafka_share_proxy.app.cli import app
    from typer.main import get_command

    root = get_command(app)
    return "\n".join(_command(root, root.context_class(root, info_name="kafka-share-proxy"), 1))


def _command(command: Any, context: Any, depth: int) -> Iterator[str]:
    if depth > 1:
        yield f"{'#' * depth} {context.command_path}\n"
    yield f"```text\n{command.get_usage(context).removeprefix('Usage: ')}\n```\n"
    yield f"{command.help or ''}\n"
    records = [record for each in command.get_params(context) if (record := each.get_help_record(context))]
    if records:
        yield table(("option", "meaning"), ((code(name), text) for name, text in records))
    for name in command.list_commands(context) if hasattr(command, "list_commands") else ():
        inner = command.get_command(context, name)
        if not inner.hidden:
            yield from _command(inner, inner.context_class(inner, info_name=name, parent=context), depth + 1)


# Settings of a share group


def group_settings() -> str:
    """Return a table of the settings of a share group that Kafka 4.3 has."""
    from kafka_share_proxy.sharegroups.model.broker_limits import BrokerShareLimits
    from kafka_share_proxy.sharegroups.model.settings import GROUP_CONFIGS

    limits = BrokerShareLimits()
    rows = [
        (
            code(key.name),
            code(key.default_value(limits)),
            "" if key.synonym is None else " to ".join(map(str, key.bounds(limits))),
            key.documentation,
        )
        for key in sorted(GROUP_CONFIGS, key=lambda key: key.name)
    ]
    return table(("setting", "default", "bounds", "meaning"), rows)


GENERATED: Mapping[str, Callable[[], str]] = {
    "settings": settings,
    "metrics": metrics,
    "log-events": log_events,
    "commands": commands,
    "group-settings": group_settings,
}

if __name__ == "__main__":
    sys.stdout.write(GENERATED[sys.argv[1]]())
