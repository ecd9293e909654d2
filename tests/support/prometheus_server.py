"""A real Prometheus that scrapes one proxy every two seconds, with the rules of the repository."""

from __future__ import annotations

import json
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import yaml
from kafka_share_proxy.localkafka.addresses import HOST, free_ports
from kafka_share_proxy.localkafka.children import Child

from tests.support import prometheus_tools

RULES = Path(__file__).resolve().parents[2] / "deploy" / "monitoring" / "rules.yaml"
SCRAPE_S = 2
READ_S = 10


class Prometheus:
    """Scrapes the admin listener of one proxy."""

    def __init__(self, folder: Path, admin_port: int) -> None:
        self._port = free_ports(1)[0]
        job = {"job_name": "kafka-share-proxy", "static_configs": [{"targets": [f"{HOST}:{admin_port}"]}]}
        settings = {
            "global": {"scrape_interval": f"{SCRAPE_S}s", "evaluation_interval": f"{SCRAPE_S}s"},
            "rule_files": [str(RULES)],
            "scrape_configs": [job],
        }
        file = folder / "prometheus.yaml"
        file.write_text(yaml.safe_dump(settings))
        command = [str(prometheus_tools.need("prometheus")), f"--config.file={file}"]
        command += [f"--web.listen-address={HOST}:{self._port}", f"--storage.tsdb.path={folder / 'data'}"]
        self.child = Child(command, folder / "prometheus.log")

    def query(self, expression: str) -> list[Any]:
        """Return the series. Raises HTTPError, with the reason in its body, for an invalid expression."""
        return list(self._read("query", query=expression)["result"])

    def query_range(self, expression: str, start: float, end: float, step: float) -> list[Any]:
        """Return the series with their values at each step. Raises HTTPError."""
        return list(self._read("query_range", query=expression, start=start, end=end, step=step)["result"])

    def label_values(self, label: str, selector: str) -> list[str]:
        """Return the values of a label over the series that match."""
        return [str(each) for each in self._read(f"label/{label}/values", **{"match[]": selector})]

    def rules(self) -> list[Any]:
        return [rule for group in self._read("rules")["groups"] for rule in group["rules"]]

    def _read(self, path: str, **parameters: object) -> Any:
        url = f"http://{HOST}:{self._port}/api/v1/{path}?" + urllib.parse.urlencode(parameters)
        with urllib.request.urlopen(url, timeout=READ_S) as response:
            return json.load(response)["data"]
