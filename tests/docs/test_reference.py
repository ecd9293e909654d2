"""The reference that docs/reference.py makes has everything that the program has."""

from __future__ import annotations

import re
import runpy
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from kafka_share_proxy.app.serving.features import event_levels
from kafka_share_proxy.app.settings.live_settings import LIVE
from kafka_share_proxy.localkafka.front import Front
from kafka_share_proxy.sharegroups.model.settings import GROUP_CONFIGS

from tests.support.documents import CHECKOUT, DOCS

CELL = re.compile(r"^\| `([^`]+)` \|", re.MULTILINE)


@pytest.fixture(scope="module")
def generated() -> dict[str, Callable[[], str]]:
    generators: dict[str, Callable[[], str]] = runpy.run_path(str(DOCS / "reference.py"))["GENERATED"]
    return generators


def names(table: str) -> list[str]:
    return CELL.findall(table)


def keys(section: dict[str, Any], prefix: str = "") -> set[str]:
    """Return the dotted names of the settings in the sample file, sections excluded."""
    key_paths = set()
    for name, value in section.items():
        key_paths |= keys(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name}
    return key_paths


def test_every_setting_is_listed_once_and_shows_if_a_reload_applies_it(generated: dict[str, Any]) -> None:
    table = generated["settings"]()
    listed = names(table)
    assert sorted(listed) == sorted(keys(yaml.safe_load((CHECKOUT / "deploy" / "settings.yaml").read_text())))
    live = set(re.findall(r"^\| `([^`]+)` \|[^|]*\| yes \|", table, re.MULTILINE))
    assert live >= LIVE
    assert "listen" not in live


def test_every_log_event_has_its_level(generated: dict[str, Any]) -> None:
    table = generated["log-events"]()
    assert sorted(names(table)) == sorted(event_levels())
    assert "| `loop-blocked` | error |" in table
    assert "| `view-refused` | warning | `error`, `reason`, `topic` | `views/creation.py` |" in table


def test_every_setting_of_a_group_has_its_default_and_bounds(generated: dict[str, Any]) -> None:
    table = generated["group-settings"]()
    assert sorted(names(table)) == sorted(key.name for key in GROUP_CONFIGS)
    assert "| `share.record.lock.duration.ms` | `30000` | 15000 to 60000 |" in table


def test_every_command_is_described(generated: dict[str, Any]) -> None:
    text = generated["commands"]()
    headings = set(re.findall(r"^#+ kafka-share-proxy (.*)$", text, re.MULTILINE))
    assert headings >= {"serve", "check", "groups", "reload", "views plan", "conformance run", "pipeline ingest"}
    assert "`--admin HOST:PORT`" in text


@pytest.mark.broker
def test_every_metric_of_a_running_proxy_is_listed(generated: dict[str, Any], proxy_39: Front) -> None:
    table = generated["metrics"]()
    listed = set(names(table))
    page = proxy_39.send_request("/metrics")[1]
    kinds = dict(re.findall(r"^# TYPE (ksp_\S+) (\S+)$", page, re.MULTILINE))
    assert len(kinds) > 60
    assert set(kinds) - listed == set()
    assert all(f"| `{name}` | {kind} |" in table for name, kind in kinds.items())
    assert "| `ksp_share_record_acknowledgements_total` | counter | `group`, `ack_type` |" in table
