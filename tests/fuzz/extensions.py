"""Every extension under the address and undefined-behaviour sanitizers: `tests/fuzz/run [--help]`

All that pyproject.toml names are built with both and loaded in place of the installed ones. Then their tests run, and
the walk and the audit of forwarded share groups get requests and responses of other seeds, compared with their Python
fallbacks, for the given time.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
import tomllib
from importlib import import_module
from pathlib import Path

from tests.fuzz import sanitized
from tests.fuzz.harness import parser

TESTS = {
    "kafka_share_proxy.audit._event_log": ("tests/audit/test_event_log.py",),
    "kafka_share_proxy.forwarding.observed._forwarded_shares": ("tests/forwarding/observed/test_forwarded_shares.py",),
    "kafka_share_proxy.forwarding.walk._pump": (
        "tests/forwarding/walk/test_pump.py",
        "tests/forwarding/walk/test_pump_tls.py",
        "tests/forwarding/walk/test_kept_bytes.py",
    ),
    "kafka_share_proxy.forwarding.walk._walk": (
        "tests/forwarding/walk/test_walk.py",
        "tests/forwarding/test_connection.py",
    ),
    "kafka_share_proxy.loop._promise": ("tests/loop/test_promise.py", "tests/loop/test_waiting.py"),
    "kafka_share_proxy.views.kernel._slicing": ("tests/views/kernel/test_slicing_kernels.py",),
    "kafka_share_proxy.wire.records._batches": ("tests/wire/records/test_batches.py",),
    "kafka_share_proxy.wire.codec._commit_frames": ("tests/wire/codec/test_commit_frames.py",),
    "kafka_share_proxy.commits.kernel._text_commits": ("tests/commits/kernel/test_text_commits.py",),
    "kafka_share_proxy.sharegroups.kernel._key_table": ("tests/sharegroups/kernel/test_key_table.py",),
    "kafka_share_proxy.wire.records._record_positions": ("tests/wire/records/test_record_positions.py",),
    "kafka_share_proxy.wire.records._small_batches": (
        "tests/wire/records/test_records.py",
        "tests/durable/test_replay.py",
    ),
}
"""Extension -> the tests of it and its twin. The driver of `_pump` is the data plane, whose tests run on it."""


def sources() -> dict[str, Path]:
    """Return the source of each extension that pyproject.toml names."""
    project = tomllib.loads((sanitized.CHECKOUT / "pyproject.toml").read_text())
    modules = project["tool"]["setuptools"]["ext-modules"]
    return {module["name"]: sanitized.CHECKOUT / module["sources"][0] for module in modules}


def load_all(folder: Path) -> None:
    """Put the extensions built in this folder in place of the installed ones, in this process."""
    for name, source in sources().items():  # the walk is built before the pump, which imports it
        package, _, last = name.rpartition(".")
        sys.modules[name] = module = sanitized.loaded(str(folder / sanitized.built_name(source)), name)
        setattr(import_module(package), last, module)


def compare(seed: int, seconds: float) -> str:
    """Compare the walk and the audit of forwarded share groups with their twins; raises AssertionError."""
    from tests.forwarding.observed import test_forwarded_shares  # once the extensions are loaded
    from tests.forwarding.walk import test_walk

    dice, deadline, turns = random.Random(seed), time.monotonic() + seconds, 0
    while time.monotonic() < deadline:
        number = dice.randrange(1 << 40)
        try:
            test_walk.compare_requests(number)
            test_walk.compare_responses(number)
            if turns % 50 == 0:
                test_forwarded_shares.compare(number)
        except AssertionError as error:
            raise AssertionError(f"with the seed {number}") from error
        turns += 1
    return f"{turns} streams of requests and as many of responses, each cut anywhere"


def _in_child(folder: Path, seed: int, seconds: float) -> None:
    """Run in a Python that has the sanitizers' runtime."""
    import pytest

    load_all(folder)
    tests = [test for each in TESTS.values() for test in each]
    status = pytest.main(["-q", "-x", "-p", "no:cacheprovider", *tests])
    if status:
        raise SystemExit(int(status))
    print(compare(seed, seconds))


def main() -> None:
    """Run as a command."""
    words = parser().parse_args()
    if words.extension:
        _in_child(Path(words.extension), words.seed, words.seconds)
        return
    missing = sources().keys() ^ TESTS.keys()
    if missing:
        raise SystemExit(f"error: name the tests of {', '.join(sorted(missing))} in tests/fuzz/extensions.py")
    print(f"extensions: seed {words.seed}, {words.seconds:g} s after their tests")
    with tempfile.TemporaryDirectory() as name:
        for source in sources().values():
            sanitized.extension(Path(name), source)
        arguments = ["--seed", str(words.seed), "--seconds", str(words.seconds), "--extension", name]
        print(sanitized.output_of_module("tests.fuzz.extensions", arguments))


if __name__ == "__main__":
    main()
