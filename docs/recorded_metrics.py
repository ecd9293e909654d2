"""Run a proxy with all features in front of a cluster in memory, and write the metrics that it adds, as JSON.

`python docs/recorded_metrics.py FILE`
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from kafka_share_proxy.app.serving import server
from kafka_share_proxy.app.settings.config import Config
from kafka_share_proxy.conformance.cluster_thread import running_cluster
from kafka_share_proxy.conformance.target.server import TargetOptions
from kafka_share_proxy.feature.metrics import Metrics
from kafka_share_proxy.localkafka.addresses import HOST, free_ports

READY_S = 60.0


def settings(bootstrap: str, folder: str) -> Config:
    """Return settings with every feature, a fleet, and audit."""
    listen, *_, peer, admin = free_ports(16)
    return Config.model_validate(
        {
            "upstream": {"bootstrap": bootstrap},
            "listen": f"{HOST}:{listen}",
            "admin": f"{HOST}:{admin}",
            "drain_s": 1,
            "log_level": "error",
            "share_groups": {"serve": "local"},
            "cluster": {"mode": "fleet", "peer": {"listen": f"{HOST}:{peer}", "insecure": True}},
            "audit": {"file": str(Path(folder, "audit.jsonl"))},
        }
    )


def end_when_ready(admin: str) -> None:
    """End this process with SIGTERM once the proxy lets clients in, or after `READY_S`."""
    until = time.monotonic() + READY_S
    while time.monotonic() < until and not _is_ready(admin):
        time.sleep(0.05)
    os.kill(os.getpid(), signal.SIGTERM)


def _is_ready(admin: str) -> bool:
    connection = http.client.HTTPConnection(admin, timeout=5)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == http.HTTPStatus.OK
    except OSError:
        return False
    finally:
        connection.close()


def main(output: Path) -> None:
    """Write the metrics of one proxy."""
    recorded: list[dict[str, Any]] = []
    add = Metrics.add

    def recording(metrics: Metrics, name: str, kind: Any, help_text: str, read: Any, *labels: str) -> None:
        recorded.append({"name": name, "kind": kind, "help": help_text, "labels": labels})
        add(metrics, name, kind, help_text, read, *labels)

    Metrics.add = recording  # type: ignore[method-assign]
    with tempfile.TemporaryDirectory() as folder, running_cluster(TargetOptions()) as cluster:
        config = settings(cluster.bootstrap, folder)
        threading.Thread(target=end_when_ready, args=[str(config.admin)], daemon=True).start()
        server.run(config, read=lambda: config)
    output.write_text(json.dumps(recorded))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
