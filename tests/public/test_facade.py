"""The names that users import: what is there, that the recipes work, and that importing them is cheap."""

from __future__ import annotations

import doctest
import inspect
import json
import pickle
import subprocess
import sys

import kafka_share_proxy
import pytest

IMPORT_S_MAX = 0.150
TRIES = 5
IMPORTED = """
import json, sys, time
before = set(sys.modules)
began = time.perf_counter()
import kafka_share_proxy
took = time.perf_counter() - began
print(json.dumps([took, sorted(set(sys.modules) - before)]))
"""


def test_the_recipes_do_what_they_describe() -> None:
    outcome = doctest.testmod(kafka_share_proxy)
    assert outcome.attempted >= 15
    assert outcome.failed == 0


def test_every_public_name_exists_and_has_a_docstring() -> None:
    names = kafka_share_proxy.__all__
    assert names == sorted(names, key=lambda name: (not name.isupper(), name[0].islower(), name))
    assert dir(kafka_share_proxy) == sorted(names)
    for name in names:
        thing = getattr(kafka_share_proxy, name)
        assert isinstance(thing, int) or inspect.getdoc(thing), name
        if inspect.isclass(thing):
            methods = [each for each, _ in inspect.getmembers(thing, inspect.isfunction) if not each.startswith("_")]
            assert [each for each in methods if not inspect.getdoc(getattr(thing, each))] == [], name


def test_importing_is_quick_and_loads_nothing_of_the_proxy_nor_any_library() -> None:
    times = []
    for _ in range(TRIES):
        output = subprocess.run(
            [sys.executable, "-c", IMPORTED], capture_output=True, text=True, timeout=60, check=True
        ).stdout
        took, modules = json.loads(output)
        times.append(took)
        rooms = {name.split(".")[1] for name in modules if name.startswith("kafka_share_proxy.")}
        assert rooms == {"offsets"}
        loaded_packages = {name.split(".")[0] for name in modules} - set(sys.stdlib_module_names)
        assert loaded_packages == {"kafka_share_proxy"}
    assert min(times) < IMPORT_S_MAX


CLIENT_IMPORTED = """
import json, sys
from kafka_share_proxy import OffsetLedger
assert "trio" not in sys.modules
from kafka_share_proxy import open_consumer
print(json.dumps(sorted(sys.modules)))
"""


def test_the_client_is_loaded_when_it_is_used_and_brings_nothing_of_the_proxy_along() -> None:
    output = subprocess.run(
        [sys.executable, "-c", CLIENT_IMPORTED], capture_output=True, text=True, timeout=60, check=True
    ).stdout
    modules = json.loads(output)
    ours = {name.split(".")[1] for name in modules if name.startswith("kafka_share_proxy.")}
    assert ours == {"offsets", "wire", "loop", "brokers", "consumer", "client"}
    assert {"structlog", "pydantic", "prometheus_client", "typer", "rich", "construct"}.isdisjoint(modules)


SPARK_IMPORTED = """
import json, sys
from kafka_share_proxy import BadOption, KeptStart, ShareStream, SparkMissing, kept_start, open_spark_session
print(json.dumps(sorted(sys.modules)))
"""


def test_the_pipeline_is_loaded_when_it_is_used_and_spark_when_a_session_is_opened() -> None:
    output = subprocess.run(
        [sys.executable, "-c", SPARK_IMPORTED], capture_output=True, text=True, timeout=60, check=True
    ).stdout
    modules = json.loads(output)
    ours = {name.split(".")[1] for name in modules if name.startswith("kafka_share_proxy.")}
    assert ours == {"offsets", "wire", "views", "consumer", "pipeline"}
    assert {"pyspark", "pyarrow", "numpy", "trio", "typer"}.isdisjoint(modules)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'open_producer'"):
        kafka_share_proxy.open_producer  # noqa: B018 - looking is what raises


NAMES_SHOWN = """
import kafka_share_proxy as k
k.open_consumer, k.open_share_consumer, k.open_spark_session
classes = [getattr(k, name) for name in k.__all__ if isinstance(getattr(k, name), type)]
print(*{each.__module__ for each in classes})
print(k.MalformedCommitText, k.LockLostError)
"""


def test_public_classes_show_their_public_name() -> None:
    """Tracebacks and `repr` name what programs import, not the room that defines it."""
    shown = subprocess.run(
        [sys.executable, "-c", NAMES_SHOWN], capture_output=True, text=True, timeout=60, check=True
    ).stdout.splitlines()
    assert shown[0] == "kafka_share_proxy"
    assert shown[1].count("'kafka_share_proxy.MalformedCommitText'") == 1
    assert shown[1].count("'kafka_share_proxy.LockLostError'") == 1


def test_public_classes_can_be_pickled() -> None:
    span = kafka_share_proxy.OffsetSpan(3, 7)
    assert pickle.loads(pickle.dumps(span)) == span
