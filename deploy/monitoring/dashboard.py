"""The Grafana dashboard, written from the table of its panels below.

    python deploy/monitoring/dashboard.py    # writes deploy/monitoring/dashboard.json

Import the file in Grafana 10 or later. `kafka-share-proxy` is looked up in the label `job` of Prometheus.
tests/long/run_monitoring draws the panels with data.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

FILE = Path(__file__).with_name("dashboard.json")
WIDTH, HEIGHT, PER_ROW = 8, 8, 3
"""Size of a panel on Grafana's grid of 24 columns, and panels next to each other."""
SELECTED = '{job=~"$job",instance=~"$instance"}'
SELECTED_GROUPS = '{job=~"$job",instance=~"$instance",group=~"$group"}'


class Panel(NamedTuple):
    """One graph. In its queries `@` is replaced by the selected proxies, `#` by their selected groups."""

    title: str
    unit: str
    queries: dict[str, str]
    """Legend -> PromQL."""
    about: str = ""
    top: float | None = None
    """End of the axis; None: the largest value."""


ROWS: dict[str, tuple[Panel, ...]] = {
    "Proxies": (
        Panel("Proxies up", "none", {"up": 'sum(up{job=~"$job"})'}),
        Panel(
            "Connections",
            "none",
            {"{{instance}} clients": "ksp_connections@", "{{instance}} upstream": "ksp_upstream_connections@"},
        ),
        Panel(
            "Traffic",
            "Bps",
            {
                "{{instance}} from clients": "rate(ksp_bytes_up_total@[$__rate_interval])",
                "{{instance}} to clients": "rate(ksp_bytes_down_total@[$__rate_interval])",
            },
        ),
        Panel(
            "Served requests, 99th percentile",
            "s",
            {
                "{{api}}": "histogram_quantile(0.99, sum by (api, le) "
                "(rate(ksp_served_request_seconds_bucket@[$__rate_interval]))) > 0"
            },
            "Requests that the proxy serves itself. ShareFetch and Fetch include their wait for records.",
        ),
        Panel(
            "Event loop",
            "s",
            {
                "{{instance}} longest iteration": "ksp_turn_longest_seconds@",
                "{{instance}} longest garbage collection": "ksp_garbage_collection_longest_seconds@",
            },
        ),
        Panel("Memory", "bytes", {"{{instance}}": "process_resident_memory_bytes@"}),
        Panel("CPU", "percentunit", {"{{instance}}": "rate(process_cpu_seconds_total@[$__rate_interval])"}),
        Panel(
            "Memory budgets",
            "bytes",
            {
                "{{instance}} local responses": "ksp_local_answer_bytes@",
                "{{instance}} gathered": "ksp_gathered_bytes@",
                "{{instance}} unsent": "ksp_unsent_bytes@",
            },
        ),
        Panel("Log events", "eps", {"{{event}}": "sum by (event) (rate(ksp_events_total@[$__rate_interval])) > 0"}),
    ),
    "Share groups": (
        Panel(
            "Lag",
            "none",
            {"{{group}}": "sum by (group) (ksp_share_group_lag#)"},
            "Records not settled (KIP-1226). Ends of logs are at most 10 s older than the scrape.",
        ),
        Panel(
            "Settled",
            "recps",
            {
                "{{group}} {{ack_type}}": "sum by (group, ack_type) "
                "(rate(ksp_share_record_acknowledgements_total#[$__rate_interval])) > 0"
            },
        ),
        Panel(
            "Time to settle the lag",
            "s",
            {
                "{{group}}": "sum by (group) (ksp_share_group_lag#) / (sum by (group) "
                '(rate(ksp_share_record_acknowledgements_total{job=~"$job",instance=~"$instance",group=~"$group",'
                'ack_type=~"accept|reject"}[5m])) > 0)'
            },
        ),
        Panel(
            "Records in flight",
            "none",
            {
                "{{group}} in flight": "sum by (group) (ksp_share_in_flight_messages#) > 0",
                "{{group}} delayed": "sum by (group) (ksp_share_delayed_messages#) > 0",
                "{{group}} blocked": "sum by (group) (ksp_share_blocked_messages#) > 0",
            },
        ),
        Panel(
            "Expired acquisition locks, and dead letters",
            "recps",
            {
                "{{group}} expired": "sum by (group) "
                "(rate(ksp_share_acquisition_lock_timeouts_total#[$__rate_interval])) > 0",
                "{{group}} dead letters": "sum by (group) "
                "(rate(ksp_share_dead_letter_records_total#[$__rate_interval])) > 0",
                "expired, selected groups": "sum(rate(ksp_share_acquisition_lock_timeouts_total#[$__rate_interval]))",
            },
        ),
        Panel(
            "Time to acquire, 99th percentile",
            "s",
            {
                "{{group}}": "histogram_quantile(0.99, sum by (group, le) "
                "(rate(ksp_share_topic_partitions_acquire_time_seconds_bucket#[$__rate_interval]))) > 0"
            },
        ),
        Panel(
            "Dead letters that wait",
            "none",
            {
                "{{group}}": "sum by (group) (ksp_share_dead_letters_waiting#) > 0",
                "topics not writable": "sum(ksp_share_dead_letter_topics_unwritable@)",
            },
        ),
        Panel(
            "Members and sessions",
            "none",
            {
                "groups": "sum(ksp_share_groups@)",
                "members": "sum(ksp_share_members@)",
                "sessions": "sum(ksp_share_sessions@)",
            },
        ),
        Panel(
            "State writes, 99th percentile",
            "s",
            {
                "{{instance}}": "histogram_quantile(0.99, sum by (instance, le) "
                "(rate(ksp_share_state_write_seconds_bucket@[$__rate_interval]))) > 0"
            },
        ),
    ),
    "Views": (
        Panel("Lag of the slowest readers", "none", {"{{view}}": "max by (view) (ksp_view_lag@)"}),
        Panel(
            "Bytes",
            "Bps",
            {
                "read from brokers": "sum(rate(ksp_view_read_bytes_total@[$__rate_interval]))",
                "scanned": "sum(rate(ksp_view_scanned_bytes_total@[$__rate_interval]))",
                "sent": "sum(rate(ksp_view_kept_bytes_total@[$__rate_interval]))",
            },
        ),
        Panel(
            "Cache hits",
            "percentunit",
            {
                "{{instance}}": "rate(ksp_view_cache_hits_total@[$__rate_interval]) / "
                "(rate(ksp_view_cache_hits_total@[$__rate_interval]) + "
                "rate(ksp_view_cache_misses_total@[$__rate_interval]) > 0)"
            },
            top=1,
        ),
    ),
    "Individual commits": (
        Panel("Lag", "none", {"{{group}}": "sum by (group) (ksp_commit_group_lag#)"}),
        Panel(
            "Ranges and open offsets",
            "none",
            {
                "{{group}} ranges": "sum by (group) (ksp_commit_ranges#)",
                "{{group}} open offsets": "sum by (group) (ksp_commit_offsets_open#)",
                "partitions near the limit": "sum(ksp_commit_partitions_near_limit@)",
            },
        ),
        Panel("Commits", "ops", {"{{kind}}": "sum by (kind) (rate(ksp_commits_total@[$__rate_interval]))"}),
    ),
    "Brokers, state and audit": (
        Panel(
            "Brokers",
            "none",
            {"{{instance}} with a listener": "ksp_brokers@", "{{instance}} left out": "ksp_brokers_left_out@"},
        ),
        Panel(
            "Internal topics at risk",
            "none",
            {
                "{{topic}} unsafe": "max by (topic) (ksp_state_topic_unsafe@)",
                "{{topic}}: {{risk}}": "max by (topic, risk) (ksp_state_topic_risks@)",
            },
        ),
        Panel(
            "Fleet",
            "none",
            {"{{instance}} linked proxies": "ksp_peers@", "{{instance}} requests at peers": "ksp_peer_requests@"},
        ),
        Panel(
            "Audit events",
            "eps",
            {
                "{{instance}} written": "rate(ksp_audit_events_total@[$__rate_interval])",
                "{{instance}} lost ({{where}})": "rate(ksp_audit_events_lost_total@[$__rate_interval])",
            },
        ),
        Panel("State partitions", "none", {"{{instance}} owned": "ksp_state_partitions@"}),
        Panel(
            "Lag not known",
            "none",
            {
                "share partitions": "sum(ksp_share_lag_partitions_unknown@)",
                "commits": "sum(ksp_commit_lag_partitions_unknown@)",
                "views": "sum(ksp_view_lag_partitions_unknown@)",
            },
        ),
    ),
}

DATA_SOURCE = {"type": "prometheus", "uid": "${datasource}"}


def dashboard() -> dict[str, Any]:
    """Return the JSON model of the dashboard."""
    return {
        "title": "kafka-share-proxy",
        "uid": "kafka-share-proxy",
        "tags": ["kafka"],
        "schemaVersion": 39,
        "editable": True,
        "timezone": "browser",
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": _variables()},
        "panels": _panels(),
    }


def _variables() -> list[dict[str, Any]]:
    labels = {
        "job": "label_values(ksp_connections, job)",
        "instance": 'label_values(ksp_connections{job=~"$job"}, instance)',
        "group": 'label_values({__name__=~"ksp_share_group_lag|ksp_commit_group_lag",job=~"$job"}, group)',
    }
    source = {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source"}
    chosen = [
        {
            "name": name,
            "type": "query",
            "datasource": DATA_SOURCE,
            "query": {"query": query, "refId": name},
            "refresh": 2,
            "sort": 1,
            "multi": True,
            "includeAll": True,
            "allValue": ".*",
            "current": {"text": ["All"], "value": ["$__all"]},
        }
        for name, query in labels.items()
    ]
    return [source, *chosen]


def _panels() -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    top = 0
    for title, panels in ROWS.items():
        made.append(
            {"id": len(made) + 1, "type": "row", "title": title, "panels": [], "gridPos": _place(0, top, 24, 1)}
        )
        top += 1
        for number, panel in enumerate(panels):
            column, line = number % PER_ROW, number // PER_ROW
            place = _place(column * WIDTH, top + line * HEIGHT, WIDTH, HEIGHT)
            made.append(_panel(len(made) + 1, panel, place))
        top += -(-len(panels) // PER_ROW) * HEIGHT
    return made


def _place(x: int, y: int, width: int, height: int) -> dict[str, int]:
    return {"x": x, "y": y, "w": width, "h": height}


def _panel(number: int, panel: Panel, place: dict[str, int]) -> dict[str, Any]:
    targets = [
        {"refId": chr(ord("A") + index), "datasource": DATA_SOURCE, "expr": _expression(query), "legendFormat": legend}
        for index, (legend, query) in enumerate(panel.queries.items())
    ]
    defaults: dict[str, Any] = {"unit": panel.unit, "min": 0, "custom": {"fillOpacity": 10}}
    if panel.top is not None:
        defaults["max"] = panel.top
    return {
        "id": number,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.about,
        "datasource": DATA_SOURCE,
        "gridPos": place,
        "targets": targets,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": {
            "legend": {"showLegend": True, "displayMode": "list", "placement": "bottom", "calcs": []},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
    }


def _expression(query: str) -> str:
    return query.replace("@", SELECTED).replace("#", SELECTED_GROUPS)


if __name__ == "__main__":
    FILE.write_text(json.dumps(dashboard(), indent=2) + "\n")
