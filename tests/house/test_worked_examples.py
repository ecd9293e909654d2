"""The worked examples in `proxy/README.md` do what they say."""

from __future__ import annotations

import ast
import re
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer
from kafka_share_proxy.app import cli
from kafka_share_proxy.app.settings import config_loading, sample_settings
from kafka_share_proxy.app.settings.config import Config
from kafka_share_proxy.feature.metrics import Metrics
from kafka_share_proxy.forwarding.dispatch import route_table
from kafka_share_proxy.forwarding.dispatch.chain import in_order
from kafka_share_proxy.forwarding.dispatch.routes import Kind, header
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.loop.promise import Promise, Task, settled
from kafka_share_proxy.sharegroups import share_group_apis
from kafka_share_proxy.views import view_apis
from kafka_share_proxy.views.model.catalog import Binding, ViewCatalog
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from typer.testing import CliRunner

from tests.support import ports, view_broker

README = Path(__file__).resolve().parents[2] / "proxy" / "README.md"


def blocks(section: str) -> list[str]:
    """The code of a section, block by block."""
    text = README.read_text().split(f"\n## {section}\n", 1)[1].split("\n## ", 1)[0]
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


class Connection:
    """A broker with one disk, queried over the client's connection."""

    id, node_id, client_host = 1, 1, "127.0.0.1"

    def __init__(self) -> None:
        self.memory: dict[str, Any] = {}

    def send_request(self, key: int, version: int, _body: bytes) -> Promise[memoryview]:
        message = registry.message("DescribeLogDirsResponse")
        disk = message.DescribeLogDirsResult(log_dir="/data", topics=[], total_bytes=4096, usable_bytes=1024)
        return settled(memoryview(registry.response(key, version).encode(message(results=[disk]))))

    def on_close(self, callback: Any) -> None:
        """Never closed."""

    def not_on_close(self, callback: Any) -> None:
        """Never closed."""


def run(coroutine: Any) -> Any:
    task: Task[Any] = Task(coroutine, lambda _: None)
    task.start()
    assert task.finished
    if task.error is not None:
        raise task.error
    return task.value


def test_a_new_api_is_one_file_and_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """The file, the line, and their effect, as in the text."""
    file, line, outcome = blocks("A new API that is served here")
    module = ModuleType("kafka_share_proxy.views.apis.k35_describe_log_dirs")
    exec(compile(file, "k35_describe_log_dirs.py", "exec"), module.__dict__)
    assert len(line.splitlines()) == 1
    added = eval(f"({line})", {"k35_describe_log_dirs": module})
    assert added[0].key not in {api.key for api in view_apis.APIS}
    monkeypatch.setattr(view_apis, "APIS", (*view_apis.APIS, *added))
    services = ports.World().services
    request = registry.message("DescribeLogDirsRequest")(topics=None)
    connection: Any = Connection()
    assert any(isinstance(node, ast.Assert) for node in ast.walk(ast.parse(outcome)))
    exec(
        compile(outcome, "outcome.py", "exec"),
        {
            "ApiKey": ApiKey,
            "Kind": Kind,
            "book": services.book,
            "call": Call(ApiKey.DESCRIBE_LOG_DIRS, 4, 1, "c", request, connection),
            "header": header,
            "in_order": in_order,
            "limits": services.limits,
            "route_table": route_table,
            "run": run,
            "services": services,
            "share_group_apis": share_group_apis,
            "versions": services.versions,
            "view_apis": view_apis,
            "views": view_broker.World().views,
        },
    )


def test_a_new_setting_is_one_field(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Flags, environment and the sample file have it as soon as the model has."""
    model, outcome = blocks("A new setting")
    file = tmp_path / "example_settings.py"
    file.write_text(model)
    spec = spec_from_file_location("example_settings", file)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "example_settings", module)
    spec.loader.exec_module(module)

    class Settings(Config):
        views: module.Views = module.Views()  # type: ignore[name-defined]

    Settings.model_rebuild(_types_namespace={"module": module})
    for reader in (config_loading, sample_settings):
        monkeypatch.setattr(reader, "Config", Settings)

    def load(flags: dict[str, str], environment: dict[str, str]) -> Any:
        return config_loading.load({"upstream.bootstrap": "a:1", "listen": "h:1"} | flags, environment)

    assert any(isinstance(node, ast.Assert) for node in ast.walk(ast.parse(outcome)))
    exec(compile(outcome, "outcome.py", "exec"), {"load": load, "sample": sample_settings.render})


def test_a_new_metric_is_one_line() -> None:
    line, outcome = blocks("A new metric")
    assert len(line.splitlines()) == 1
    metrics, catalog = Metrics(), ViewCatalog()
    catalog.bind("__view.r2.orders", Binding(b"v" * 16, b"b" * 16))
    names = {"metrics": metrics, "catalog": catalog}
    exec(compile(line, "metrics.py", "exec"), names)
    exec(compile(outcome, "outcome.py", "exec"), names)


def test_a_new_command_is_one_function(monkeypatch: pytest.MonkeyPatch) -> None:
    command, outcome = blocks("A new command")
    monkeypatch.setattr(cli.app, "registered_commands", list(cli.app.registered_commands))
    exec(compile(command, "cli.py", "exec"), {"app": cli.app, "registry": registry, "typer": typer})

    def invoke(*arguments: str) -> Any:
        return CliRunner().invoke(cli.app, arguments)

    exec(compile(outcome, "outcome.py", "exec"), {"invoke": invoke})
