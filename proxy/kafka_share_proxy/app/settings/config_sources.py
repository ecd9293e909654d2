"""Sources of settings: a YAML file, the environment, flags. Merged key by key, each value with its origin.

Sources are added from the weakest to the strongest: a later value replaces an earlier one of the same path, and maps
are merged. Only the readability of a source is checked here. Mistakes are collected, never raised, so that all of them
are reported together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

Key = tuple[str, ...]

ENVIRONMENT_PREFIX = "KSP_"
CONFIG_VARIABLE = "KSP_CONFIG"
FILE_BYTES_MAX = 1 << 20
"""Maximum size of a settings file, which has a page or two. A larger one is the wrong file."""


class Mistake(NamedTuple):
    """Mistake in the settings, with its place and a text that says how to correct it."""

    path: Key
    text: str


class Sources:
    """Merged settings with their origins, and the mistakes in them."""

    def __init__(self, dotted: Mapping[Key, Iterable[str]] | None = None) -> None:
        """`dotted`: known names with dots, by the path below which each of them is one key."""
        self.data: dict[str, Any] = {}
        self.mistakes: list[Mistake] = []
        self.unread = False
        """True if there is a file whose content could not be read."""
        self._origins: dict[Key, str] = {}
        # A shell variable cannot have dots in its name: GROUP_SHARE_MAX_SIZE means group.share.max.size.
        self._dotted = {
            path: {name.replace(".", "_"): name for name in names} for path, names in (dotted or {}).items()
        }

    def add_file(self, path: str | None) -> None:
        """Add the YAML file at `path`, if it is not None."""
        if path is None:
            return
        try:
            text = _read(Path(path))
            parsed = _parse(text)
        except (OSError, ValueError) as error:
            self.unread = True
            self.mistakes.append(Mistake(("config",), f"cannot read {path}: {error}"))
            return
        if parsed is None:
            return
        if not isinstance(parsed, Mapping):
            self.unread = True
            self.mistakes.append(Mistake(("config",), f"{path} must hold a map of settings"))
            return
        self._put_all((), parsed, path)

    def add_environment(self, environment: Mapping[str, str]) -> None:
        """Add every KSP_ variable: KSP_UPSTREAM__BOOTSTRAP sets upstream.bootstrap."""
        for name in sorted(environment):
            if name.startswith(ENVIRONMENT_PREFIX) and name != CONFIG_VARIABLE:
                parts = tuple(name.removeprefix(ENVIRONMENT_PREFIX).lower().split("__"))
                if (names := self._dotted.get(parts[:-1])) is not None:
                    parts = (*parts[:-1], names.get(parts[-1], parts[-1]))
                self._put(parts, environment[name], f"environment variable {name}")

    def add_flags(self, flags: Mapping[str, object]) -> None:
        """Add values by dotted key. None: the flag was not given."""
        for dotted, value in flags.items():
            if value is not None:
                self._put(self._split(dotted), value, "command line")

    def mistake(self, path: Key, text: str) -> None:
        """Note a mistake, unless this very setting is known to be wrong already."""
        if not any(known.path == path for known in self.mistakes):
            self.mistakes.append(Mistake(path, text))

    def drop(self, path: Key) -> bool:
        """Remove a wrong value, so that the rest can be validated. Return True if there was one.

        An item of a list is removed with its list, because the paths of later items would change.
        """
        holder: Any = self.data
        removable: tuple[dict[str, Any], str] | None = None
        for part in path:
            if isinstance(holder, dict) and part in holder:
                removable = holder, part
                holder = holder[part]
            elif isinstance(holder, list) and part.isdigit() and int(part) < len(holder):
                holder = holder[int(part)]
            else:
                return False
        if removable is not None:
            del removable[0][removable[1]]
        return removable is not None

    def origin(self, path: Key) -> str | None:
        """Return the origin of the value at `path`, or of its parent."""
        for end in range(len(path), 0, -1):
            if path[:end] in self._origins:
                return self._origins[path[:end]]
        return None

    def report(self) -> str:
        """Return a line for each mistake, with its path and origin."""
        lines = [self._line(mistake) for mistake in sorted(self.mistakes, key=lambda mistake: mistake.path)]
        return "\n".join([f"{len(lines)} setting{'s' if len(lines) > 1 else ''} cannot work:", *lines])

    def _line(self, mistake: Mistake) -> str:
        origin = self.origin(mistake.path)
        return f"  {'.'.join(mistake.path)}{f' ({origin})' if origin else ''}: {mistake.text}"

    def _split(self, dotted: str) -> Key:
        parts = tuple(dotted.split("."))
        for path in self._dotted:
            if parts[: len(path)] == path and len(parts) > len(path):
                return (*path, ".".join(parts[len(path) :]))
        return parts

    def _put_all(self, prefix: Key, values: Mapping[Any, Any], origin: str) -> None:
        for key, value in values.items():
            path = (*prefix, str(key))
            if isinstance(value, Mapping):
                self._put_all(path, value, origin)
            elif value is not None:  # `key:` alone means "as if not written"
                self._put(path, value, origin)

    def _put(self, path: Key, value: object, origin: str) -> None:
        holder = self.data
        for part in path[:-1]:
            inner = holder.get(part)
            if not isinstance(inner, dict):
                inner = holder[part] = {}
            holder = inner
        holder[path[-1]] = value
        self._origins[path] = origin


def _read(path: Path) -> str:
    with path.open("rb") as file:
        raw = file.read(FILE_BYTES_MAX + 1)
    if len(raw) > FILE_BYTES_MAX:
        raise ValueError(f"larger than {FILE_BYTES_MAX} bytes, this is no settings file")
    return raw.decode("utf-8")


def _parse(text: str) -> Any:
    import yaml

    class UniqueKeys(yaml.SafeLoader):
        """Two values for one key in one file: it is unclear which one applies."""

    def mapping(loader: yaml.SafeLoader, node: yaml.MappingNode) -> dict[Any, Any]:
        keys = [loader.construct_object(key, deep=True) for key, _ in node.value]
        twice = sorted({str(key) for key in keys if keys.count(key) > 1})
        if twice:
            raise ValueError(f"line {node.start_mark.line + 1}: {', '.join(twice)} is written twice")
        return loader.construct_mapping(node, deep=True)

    UniqueKeys.add_constructor("tag:yaml.org,2002:map", mapping)
    try:
        return yaml.load(text, Loader=UniqueKeys)  # noqa: S506  # derived from SafeLoader
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from None
