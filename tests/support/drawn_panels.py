"""The panels of the dashboard, with data of a Prometheus, drawn in a browser by the components of Grafana's panels.

Grafana itself is in none of the package registries. Its panels draw with @grafana/ui and @grafana/data, which are.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support.chromium import Tab
from tests.support.programs import built, need
from tests.support.prometheus_server import SCRAPE_S, Prometheus

LABEL = re.compile(r"\{\{\s*(\w+)\s*\}\}")
VARIABLE = re.compile(r"\$(\w+)")
LABEL_VALUES = re.compile(r"label_values\((?P<selector>.*), (?P<label>\w+)\)")
INTERVAL_S = 4 * SCRAPE_S
"""Seconds of $__rate_interval in Grafana: at least four scrapes."""
WIDTH, DRAWN_S = 1920, 60.0
BUNDLE = "npm install --no-package-lock --no-audit --no-fund --silent && npx esbuild panels.mjs --bundle --minify "
BUNDLE += "--outfile=panels.js --loader:.ttf=empty --define:process.env.NODE_ENV='\"production\"' --log-level=warning "
BUNDLE += "&& rm -r node_modules"


def variables(dashboard: Mapping[str, Any], prometheus: Prometheus) -> dict[str, list[str]]:
    """Return the values that each variable of the dashboard offers."""
    offered: dict[str, list[str]] = {}
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            match = LABEL_VALUES.fullmatch(_filled(variable["query"]["query"], offered))
            assert match is not None, variable["query"]
            offered[variable["name"]] = prometheus.label_values(match["label"], match["selector"])
    return offered


def with_data(dashboard: Mapping[str, Any], prometheus: Prometheus, seconds: float) -> list[dict[str, Any]]:
    """Return the panels of the dashboard. Each target has the `series` of the last seconds, all values selected."""
    offered = variables(dashboard, prometheus)
    end = time.time()
    panels: list[dict[str, Any]] = json.loads(json.dumps(dashboard["panels"]))
    for panel in panels:
        for target in panel.get("targets", ()):
            expression = _filled(target["expr"], offered | {"__rate_interval": [f"{INTERVAL_S}s"]})
            series = prometheus.query_range(expression, end - seconds, end, SCRAPE_S)
            target["series"] = [_series(target["legendFormat"], each) for each in series]
    return panels


def _filled(expression: str, offered: Mapping[str, list[str]]) -> str:
    """Replace the variables, as Grafana does where several values are selected."""

    def text(match: re.Match[str]) -> str:
        values = offered[match[1]]
        return values[0] if match[1].startswith("__") else f"({'|'.join(map(re.escape, values))})"

    return VARIABLE.sub(text, expression).replace("\\", "\\\\")


def _series(legend: str, series: Mapping[str, Any]) -> dict[str, Any]:
    labels: dict[str, str] = series["metric"]
    points = [[at * 1000, None if math.isnan(float(value)) else float(value)] for at, value in series["values"]]
    return {"name": LABEL.sub(lambda match: labels.get(match[1], ""), legend), "points": points}


def draw(panels: list[dict[str, Any]], tab: Tab, picture: Path, scheme: str) -> list[dict[str, Any]]:
    """Draw the panels and write a picture of them. Return for each what is seen: title, text, colours, ticks."""
    folder = built("panels", [need("sh"), "-c", BUNDLE], "panels.js")
    times = [point[0] for panel in panels for target in panel.get("targets", ()) for series in target["series"]
             for point in series["points"]]  # fmt: skip
    content = json.dumps({"panels": panels, "from": min(times), "to": max(times), "scheme": scheme})
    page = folder / f"page-{scheme}.html"
    styles = '<!DOCTYPE html><meta charset="utf-8"><link rel="stylesheet" href="panels.css">'
    page.write_text(f'{styles}<body><script>dashboard = {content}</script><script src="panels.js"></script></body>')
    height = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels) * 38
    tab.picture(picture, WIDTH, height, scheme)  # also sets the size of the window
    tab.open(page.as_uri())
    end = time.monotonic() + DRAWN_S
    while (drawn := tab.value("window.drawn")) is None:
        assert time.monotonic() < end, tab.value("document.body.innerText")
        time.sleep(0.2)
    tab.picture(picture, WIDTH, height, scheme)
    return list(drawn)
