"""Rules, dashboard and autoscaling: their queries name real metrics, every alert has a page in the runbook."""

from __future__ import annotations

import json
import re
import runpy
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard
from kafka_share_proxy.localkafka.addresses import HOST, free_ports

from tests.support.brokers import OLD, Running
from tests.support.prometheus_tools import need

CHECKOUT = Path(__file__).resolve().parents[2]
MONITORING = CHECKOUT / "deploy" / "monitoring"
RUNBOOK = CHECKOUT / "docs/runbook.md"
PROMTOOL_S = 60
METRIC = re.compile(r"\b(?:ksp_|process_)[a-z0-9_]+")
RECORDED = re.compile(r"\bksp:[a-z0-9_:]+")
HISTOGRAM_SERIES = ("_bucket", "_count", "_sum")


def rules() -> list[dict[str, Any]]:
    loaded = yaml.safe_load((MONITORING / "rules.yaml").read_text())
    return [rule for group in loaded["groups"] for rule in group["rules"]]


def alerts() -> dict[str, dict[str, Any]]:
    return {rule["alert"]: rule for rule in rules() if "alert" in rule}


def dashboard() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((MONITORING / "dashboard.json").read_text())
    return loaded


def panels() -> list[dict[str, Any]]:
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def keda_query() -> str:
    loaded = yaml.safe_load((MONITORING / "keda.yaml").read_text())
    (trigger,) = loaded["spec"]["triggers"]
    return str(trigger["metadata"]["query"])


def queries() -> Iterator[tuple[str, str]]:
    """Yield (where, PromQL)."""
    for rule in rules():
        yield str(rule.get("alert") or rule["record"]), rule["expr"]
    for panel in panels():
        for target in panel["targets"]:
            yield panel["title"], target["expr"]
    for variable in dashboard()["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["name"], variable["query"]["query"]
    yield "keda.yaml", keda_query()


@pytest.fixture(scope="module")
def exposed(running: Running, tmp_path_factory: pytest.TempPathFactory) -> frozenset[str]:
    """Series names of a proxy with everything switched on, one of a fleet."""
    peer = {"listen": f"{HOST}:{free_ports(1)[0]}", "insecure": True}
    settings = {
        "audit": {"file": str(tmp_path_factory.mktemp("audit") / "events.jsonl")},
        "cluster": {"mode": "fleet", "peer": peer},
    }
    front = running.front(running.cluster(OLD).bootstrap, settings)
    return series_names(front.send_request("/metrics")[1])


def series_names(page: str) -> frozenset[str]:
    """Return the names of series by the TYPE lines, also of metrics without a value."""
    kinds: dict[str, str] = dict(re.findall(r"(?m)^# TYPE (\S+) (\S+)$", page))
    ends = [name + end for name, kind in kinds.items() if kind == "histogram" for end in HISTOGRAM_SERIES]
    return frozenset([*kinds, *ends])


@pytest.mark.broker
@pytest.mark.timeout(240)
def test_every_metric_of_rules_dashboard_and_autoscaling_is_exposed_by_a_proxy(exposed: frozenset[str]) -> None:
    missing = {(where, name) for where, query in queries() for name in METRIC.findall(query) if name not in exposed}
    assert not missing


def test_every_recorded_series_that_is_used_is_recorded() -> None:
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    used = {name for _, query in queries() for name in RECORDED.findall(query)}
    assert used <= recorded


def test_every_alert_names_its_section_of_the_runbook_and_every_section_has_an_alert() -> None:
    sections = re.findall(r"(?m)^## (\S+)$", RUNBOOK.read_text())
    assert sorted(sections) == sorted(alerts())
    for name, rule in alerts().items():
        assert rule["annotations"]["runbook_url"] == f"docs/runbook.md#{name.lower()}"
        assert rule["labels"]["severity"] in ("info", "warning", "critical")


def test_every_alert_and_the_query_of_the_autoscaler_have_a_unit_test() -> None:
    tests = yaml.safe_load((MONITORING / "rules_test.yaml").read_text())["tests"]
    firing = {case["alertname"] for test in tests for case in test.get("alert_rule_test", ()) if case.get("exp_alerts")}
    assert firing == set(alerts())
    assert keda_query() in {case["expr"] for test in tests for case in test.get("promql_expr_test", ())}


def test_links_and_commands_of_the_runbook_exist() -> None:
    text = RUNBOOK.read_text()
    sections = {name.lower() for name in re.findall(r"(?m)^## (\S+)$", text)}
    for target in re.findall(r"\]\(([^)]+)\)", text):
        if target.startswith("#"):
            assert target[1:] in sections, target
        else:
            assert (RUNBOOK.parent / target).exists(), target


def test_the_dashboard_is_what_its_script_writes() -> None:
    written = runpy.run_path(str(MONITORING / "dashboard.py"))["dashboard"]()
    assert written == dashboard()


def test_the_dashboard_is_read_by_the_schema_of_grafana_without_a_loss() -> None:
    """A key that Grafana does not know, or knows elsewhere, would be lost."""
    register_default_plugins()
    assert lost(dashboard(), json.loads(JSONEncoder().encode(Dashboard.from_json(dashboard())))) == []


def lost(written: Any, read: Any, path: str = "") -> list[str]:
    """Return the paths of values that were not read. Defaults may be added."""
    if isinstance(written, dict) and isinstance(read, dict):
        return [each for key, value in written.items() for each in lost(value, read.get(key), f"{path}/{key}")]
    if isinstance(written, list) and isinstance(read, list) and len(written) == len(read):
        return [each for at, pair in enumerate(zip(written, read, strict=True)) for each in lost(*pair, f"{path}/{at}")]
    return [] if written == read else [path]


def test_a_key_that_grafana_does_not_know_is_noticed() -> None:
    """Otherwise the test above could not fail."""
    register_default_plugins()
    changed = dashboard()
    panel = next(panel for panel in changed["panels"] if panel["type"] != "row")
    panel["fieldConfig"]["defaults"]["units"] = "s"
    (path,) = lost(changed, json.loads(JSONEncoder().encode(Dashboard.from_json(changed))))
    assert path.endswith("/fieldConfig/defaults/units")


def test_panels_have_ids_of_their_own_and_do_not_overlap() -> None:
    every = dashboard()["panels"]
    assert len({panel["id"] for panel in every}) == len(every)
    cells: set[tuple[int, int]] = set()
    for panel in every:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        columns, lines = range(place["x"], place["x"] + place["w"]), range(place["y"], place["y"] + place["h"])
        panel_cells = {(x, y) for x in columns for y in lines}
        assert not panel_cells & cells, panel["title"]
        cells |= panel_cells


@pytest.mark.parametrize("arguments", [("check", "rules", "rules.yaml"), ("test", "rules", "rules_test.yaml")])
def test_promtool_accepts_the_rules_and_their_unit_tests(arguments: tuple[str, ...]) -> None:
    command = [str(need("promtool")), *arguments]
    done = subprocess.run(command, cwd=MONITORING, capture_output=True, text=True, timeout=PROMTOOL_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
