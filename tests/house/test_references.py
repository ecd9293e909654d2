"""Names in backticks exist: modules and their names, files, and settings, in docstrings and Markdown documents."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.support import sources

CHECKOUT = Path(__file__).resolve().parents[2]
SOURCE_ROOT = CHECKOUT / "proxy"
PROXY = SOURCE_ROOT / "kafka_share_proxy"
SOURCES = sorted(PROXY.rglob("*.py"))
DOCUMENTS = [
    *(CHECKOUT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted(SOURCE_ROOT.rglob("*.md")),
    *sorted((CHECKOUT / "docs").rglob("*.md")),
]
DESCRIBED = [*SOURCES, *DOCUMENTS]

FENCED = re.compile(r"```.*?```", re.DOTALL)
QUOTED = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
PATH = re.compile(r"(?:[\w.-]+/)*[\w.-]+\.(?:py|pyi|c|h|md|json|yaml|toml)|(?:[a-z_]+/)+")
DOTTED = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+(?:\(\))?|[a-z_]+(?:\.[a-z_]+)*\.\*")
NAME = re.compile(r"[a-z]+(?:_[a-z0-9]+)+(?:\(\))?")

OUTPUTS = {
    "environment.tar.gz",
    "holes.json",
    "pipeline-demo",
    "produce.py",
    "range_plan.json",
    "report.html",
    "run.py",
    "test_worker.py",
    "worker.py",
    "_compacting.json",
}
"""Files that users name, or that commands write."""
EXAMPLES = {"views/apis/k35_describe_log_dirs.py"}
"""Files that a worked example makes."""
FOREIGN = ("asyncio.", "pyspark.", "spark.", "ssl.", "trio.")
"""Prefixes of names in libraries."""
OF_OTHERS = {
    "Consumer.consumer_group_metadata()": "confluent-kafka",
    "Slice._make": "typing.NamedTuple",
    "ic/": "beginning of a commit text",
    "rule_files": "Prometheus",
    "runbook_url": "Prometheus",
    "rd_kafka_consumer_group_metadata_write": "librdkafka",
    "reconnect.backoff.ms": "Kafka",
    "records/_backfills/": "folder of a table",
    "records/_streams/": "folder of a table",
    "send_offsets_to_transaction": "confluent-kafka",
    "streaming_job": "folder of Spark",
}
"""Names that are defined elsewhere, each with where."""
METRIC = "ksp_"
"""Prefix of metrics. Their declarations omit it, and the unit or `_total` at the end."""


def quoted_in(path: Path) -> Iterator[str]:
    """Yield the names in backticks of a document, or of the docstrings of a source."""
    text = path.read_text()
    if path.suffix == ".py":
        text = "\n".join(docstring for _, docstring in sources.docstrings(text))
    yield from dict.fromkeys(QUOTED.findall(FENCED.sub("", text)))


@cache
def names_of_modules() -> dict[str, set[str]]:
    """Module, by its last name -> names that are defined in modules of that name."""
    names: dict[str, set[str]] = {}
    for path in SOURCES:
        defined = names.setdefault(path.parent.name if path.stem == "__init__" else path.stem, set())
        for node in sources.nodes(path.read_text()):
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                defined.add(node.name)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                defined.add(node.id)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                defined.add(node.attr)
            elif isinstance(node, ast.ImportFrom):
                defined.update(alias.asname or alias.name for alias in node.names)
    return names


@cache
def classes() -> dict[str, set[str]]:
    """Class -> names that are defined in it, and in its module."""
    names: dict[str, set[str]] = {}
    for path in SOURCES:
        for node in sources.nodes(path.read_text()):
            if isinstance(node, ast.ClassDef):
                names.setdefault(node.name, set()).update(names_of_modules()[path.stem])
    return names


@cache
def rooms() -> frozenset[str]:
    return frozenset(path.name for path in PROXY.rglob("*") if path.is_dir()) | {PROXY.name}


@cache
def words_of_sources() -> frozenset[str]:
    """Return every word in code and in strings that are no docstrings, of the package and its message definitions."""
    words: set[str] = set()
    for path in [*SOURCES, *PROXY.rglob("*.pyi"), *PROXY.rglob("*.c"), *PROXY.rglob("*.h")]:
        text = path.read_text()
        if path.suffix == ".py":
            named_and_quoted, documented = sources.words(text), {line for line, _ in sources.docstrings(text)}
            words.update(name for _, name in named_and_quoted.names)
            text = "\n".join(string for line, string in named_and_quoted.strings if line not in documented)
        words.update(re.findall(r"\w+", text))
    words.update(path.stem for path in CHECKOUT.rglob("*.py") if ".venv" not in path.parts)
    for path in (CHECKOUT / "schemas").rglob("*.json"):
        words.update(re.findall(r"\w+", path.read_text()))
    return frozenset(words)


@cache
def settings() -> dict[str, Any]:
    """Return all settings, as the sample file lists them."""
    listed: dict[str, Any] = yaml.safe_load((CHECKOUT / "deploy" / "settings.yaml").read_text())
    return listed


def has_setting(name: str) -> bool:
    """Return True if this setting exists. A trailing `*` stands for all settings of a section."""
    section: Any = settings()
    for part in name.removesuffix(".*").split("."):
        if not isinstance(section, dict) or part == "group":
            return True  # keys of a mapping are free, and Kafka's names have dots
        if part not in section:
            return False
        section = section[part]
    return True


def sections() -> frozenset[str]:
    """Return the settings that contain others."""
    return frozenset(name for name, value in settings().items() if isinstance(value, dict))


def has_file(name: str, base: Path) -> bool:
    """Return True if the file or folder exists, seen from the checkout, the package, or the folder of the text."""
    if any((folder / name).exists() for folder in (CHECKOUT, SOURCE_ROOT, PROXY, base)):
        return True
    if "/" not in name.rstrip("/"):
        plain = name.rstrip("/")
        return any(each.name == plain for root in ("proxy", "tests", "schemas", "deploy") for each in files_of(root))
    return any(str(each).endswith(f"/{name}".rstrip("/")) for each in files_of("proxy"))


@cache
def files_of(root: str) -> tuple[Path, ...]:
    return tuple(path for path in (CHECKOUT / root).rglob("*") if not any(part[0] == "." for part in path.parts[1:]))


def has_dotted(name: str) -> bool:
    """Return True if `room.module`, `module.name`, `Class.method` or the setting exists, or the name is foreign."""
    first, *rest = name.removesuffix("()").split(".")
    if name.startswith(FOREIGN):
        return True
    if first in sections():
        return has_setting(name) or first in rooms() or rest[-1] in names_of_modules().get(first, ())
    if first.islower() and first not in names_of_modules() and first not in rooms():
        return first in words_of_sources() and not (len(rest) == 1 and rest[0].isupper())
    owner, last = [first, *rest][-2:]
    if owner in names_of_modules() and last in names_of_modules()[owner]:
        return True
    if owner in classes():
        return last in classes()[owner]
    if first in rooms() and len(rest) >= 1 and first not in names_of_modules():
        return rest[-1] in names_of_modules() or rest[-1] in rooms()
    is_ours = owner in names_of_modules() and owner not in rooms() | {"messages"}
    return not (is_ours and last[0].isupper())  # a setting of Kafka may begin like a module


def has_name(name: str) -> bool:
    """Return True if a word of the sources is this name, or this metric."""
    plain = name.removeprefix(METRIC)
    return any(each in words_of_sources() for each in (name, plain, plain.removesuffix("_total")))


def missing_in(path: Path) -> list[str]:
    """Return the names in backticks that refer to nothing."""
    missing = []
    for name in quoted_in(path):
        if name in OF_OTHERS:
            continue
        if PATH.fullmatch(name):
            if name.rstrip("/") not in OUTPUTS | EXAMPLES and not has_file(name, path.parent):
                missing.append(name)
        elif DOTTED.fullmatch(name):
            if not has_dotted(name):
                missing.append(name)
        elif NAME.fullmatch(name) and not has_name(name.removesuffix("()")):
            missing.append(name)
    return missing


def test_names_in_backticks_exist() -> None:
    missing = {path.relative_to(CHECKOUT).as_posix(): missing_in(path) for path in DESCRIBED}
    assert {path: names for path, names in missing.items() if names} == {}


def test_names_that_do_not_exist_are_found() -> None:
    assert has_setting("limits.connections")
    assert has_setting("limits.*")
    assert has_setting("cluster.peer.secret")
    assert not has_setting("limits.no_such")
    assert has_dotted("prefixes.PrefixReader")
    assert has_dotted("limits.connections")
    assert not has_dotted("limits.no_such")
    assert not has_dotted("prefixes.Reader")
    assert not has_dotted("no_such_module.Reader")
    assert has_file("durable/journal.py", PROXY)
    assert not has_file("durable/no_such.py", PROXY)
    assert "no_such_name_anywhere" not in words_of_sources()
