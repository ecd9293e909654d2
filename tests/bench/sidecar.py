"""What a sidecar costs, idle and at work: CPU and memory of the proxy of deploy/kubernetes/sidecar.yaml.

    python -m tests.bench.sidecar [--seconds N]

In front of one real broker 3.9.1, with the settings of the manifest and its liveness probe. The application is a
producer and a consumer, or a member of a share group, on stock clients in a process of its own. CPU in millicores, as
Kubernetes has it (1000m is one core); memory is resident MiB at the end of each row.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from kafka_share_proxy.localkafka.addresses import HOST, free_ports
from kafka_share_proxy.localkafka.children import Child
from kafka_share_proxy.localkafka.front import Front

from tests.support.brokers import OLD, Running
from tests.support.memory import rss_mib
from tests.support.raw import until

MANIFEST = Path(__file__).resolve().parents[2] / "deploy" / "kubernetes" / "sidecar.yaml"
PROBE_S = 10.0
WARM_S = 3.0
START_S = 60.0
RECORD_BYTES = 1000
CASES = (
    ("no client", None, 0),
    ("clients without records", "plain", 0),
    ("plain, 1,000 records/s", "plain", 1000),
    ("plain, 10,000 records/s", "plain", 10_000),
    ("share group, 1,000 records/s", "share", 1000),
    ("share group, 5,000 records/s", "share", 5000),
)
APPLICATION = """
import sys, time
from confluent_kafka import AcknowledgeType, Consumer, Producer, ShareConsumer

bootstrap, kind, rate, size, topic = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
servers = {"bootstrap.servers": bootstrap, "log_level": 0}
producer = Producer(servers | {"linger.ms": 5})
producer.produce(topic, b"first")
producer.flush(30)
if kind == "plain":
    consumer = Consumer(servers | {"group.id": topic, "auto.offset.reset": "earliest"})
    take = lambda: consumer.consume(500, 0.05)
else:
    consumer = ShareConsumer(servers | {"group.id": topic, "share.acknowledgement.mode": "explicit"})
    take = lambda: consumer.poll(0.05)
consumer.subscribe([topic])
value, began, sent, done, end = b"x" * size, time.monotonic(), 0, 0, time.monotonic() + float(sys.argv[6])
while time.monotonic() < end:
    due = int((time.monotonic() - began) * rate)
    for _ in range(min(due - sent, 2000)):
        producer.produce(topic, value)
        sent += 1
    producer.poll(0)
    for message in take():
        if message.error() is None:
            done += 1
            if kind == "share":
                consumer.acknowledge(message, AcknowledgeType.ACCEPT)
    if kind == "share":
        consumer.commit_async()
    print(sent, done, flush=True)
"""


def settings() -> dict[str, Any]:
    """Return the settings of the manifest, with addresses of this machine."""
    config_map, _ = yaml.safe_load_all(MANIFEST.read_text(encoding="utf-8"))
    loaded: dict[str, Any] = yaml.safe_load(config_map["data"]["settings.yaml"])
    peer = {"listen": f"{HOST}:{free_ports(1)[0]}", "secret": "of this measurement"}
    loaded_settings = {key: loaded[key] for key in ("log_format", "drain_s")}
    return loaded_settings | {"cluster": {"mode": loaded["cluster"]["mode"], "peer": peer}}


def cpu_s(pid: int) -> float:
    """Return the CPU seconds that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def application(folder: Path, front: Front, kind: str | None, rate: int, seconds: float) -> Iterator[Path | None]:
    """Run the clients of one row; None without clients."""
    if kind is None:
        yield None
        return
    topic = f"{kind}-{rate}"
    log = folder / f"{topic}.log"
    words = [front.bootstrap, kind, str(rate), str(RECORD_BYTES), topic, str(seconds)]
    child = Child([sys.executable, "-c", APPLICATION, *words], log)
    try:
        until(lambda: log.read_text().count("\n") > 1, "the clients to work", START_S)
        yield log
    finally:
        child.kill()


def counted(log: Path | None) -> int:
    """Return how many records the clients have consumed."""
    lines = log.read_text().splitlines() if log is not None else []
    return int(lines[-1].split()[1]) if lines else 0


def measured(front: Front, log: Path | None, seconds: float) -> tuple[float, float, float]:
    """Return millicores, resident MiB and consumed records/s."""
    assert front.child is not None
    pid = front.child.pid
    time.sleep(WARM_S)
    used, began, records = cpu_s(pid), time.monotonic(), counted(log)
    while time.monotonic() < began + seconds:
        front.send_request("/livez")
        time.sleep(min(PROBE_S, max(0.0, began + seconds - time.monotonic())))
    took = time.monotonic() - began
    return 1000 * (cpu_s(pid) - used) / took, rss_mib(pid), (counted(log) - records) / took


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20)
    seconds = parser.parse_args().seconds
    with tempfile.TemporaryDirectory() as name:
        running = Running(Path(name))
        try:
            kafka = running.cluster(OLD)
            front = running.front(kafka.bootstrap, settings())
            print("| sidecar | CPU | resident | consumed |\n|---|---|---|---|")
            for case, kind, rate in CASES:
                with application(Path(name), front, kind, rate, seconds + START_S) as log:
                    millicores, mib, records = measured(front, log, seconds)
                print(f"| {case} | {millicores:.0f}m | {mib:.0f} MiB | {records:,.0f}/s |", flush=True)
        finally:
            running.close()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
