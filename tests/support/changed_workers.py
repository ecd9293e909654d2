"""Changes to the workers of a running proxy: all replaced by a reload, or one killed."""

from __future__ import annotations

import http.client
import json
import os
import signal
from random import Random

import yaml
from kafka_share_proxy.localkafka.addresses import HOST
from kafka_share_proxy.localkafka.front import Front

RELOAD_S, KILL_S = 5.0, 10.0
"""Seconds between two replacements of all workers, and between two kills of a worker."""
RELOAD_WAIT_S = 60


def replace_workers(front: Front, number: int) -> None:
    """Change a setting, and see that new workers apply it. `number`: differs from that of the call before."""
    before = set(worker_pids(front))
    file = front.folder / "proxy.yaml"
    settings = yaml.safe_load(file.read_text())
    settings["limits"] = {"dial_timeout_s": 5 + number}
    file.write_text(yaml.safe_dump(settings))
    connection = http.client.HTTPConnection(HOST, front.admin_port, timeout=RELOAD_WAIT_S)
    connection.request("POST", "/reload")
    response = connection.getresponse()
    body = response.read()
    connection.close()
    assert response.status == http.HTTPStatus.OK, body
    assert json.loads(body)["changed"] == ["limits.dial_timeout_s"]
    after = set(worker_pids(front))
    assert len(after - before) == settings["workers"]


def kill_a_worker(front: Front, draw: Random) -> None:
    """Kill one of the workers, not the process that forks them."""
    os.kill(draw.choice(worker_pids(front)), signal.SIGKILL)


def worker_pids(front: Front) -> list[int]:
    """Return the processes of the workers, also of those that drain."""
    return list(json.loads(front.send_request("/livez")[1])["workers"].values())
