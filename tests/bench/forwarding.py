"""Measure the cost of forwarding: CPU of the proxy as a multiple of a minimal relay in C, in front of a real broker.

    tests/bench/run [--rounds 5] [--case latency-poll ...] [--beside CHECKOUT ...]

Builds the load generator (kload.c) and the relay (relay.c), starts a broker, the relay and the proxy, and prints a
table with the required and the desired figures. The exit status is 1 if a required figure is not reached. Proxies of
other checkouts, built in their `.venv`, can be measured in the same rounds: only figures of one run compare.

Two lower bounds run in the same rounds. `frames` is the relay that also follows frames and correlation ids and replaces
responses with addresses (frames.h): no Kafka proxy does less. `pump` is a process with only the C code that forwards in
the proxy (pump_alone.py): no loop, no other thread, no features. Between relay and `frames` is what the protocol costs;
between `frames` and `pump` the interpreter, its lock and its objects; between `pump` and the proxy everything else.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from rich.table import Table

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "proxy"))

from kafka_share_proxy.localkafka.addresses import free_ports  # noqa: E402  # found through the path set above
from kafka_share_proxy.localkafka.children import Child  # noqa: E402
from kafka_share_proxy.localkafka.cluster import Cluster  # noqa: E402
from kafka_share_proxy.localkafka.front import Front  # noqa: E402

from tests.bench.measuring import Case, LoadError, Way, forget, load, measure, middle, pinned, spread  # noqa: E402
from tests.support.memory import own_mib, rss_mib  # noqa: E402

RELEASE = "4.3.0"
FILL_BYTES = 1_200_000_000
"""Bytes stored for fetching: a case reads 1 GiB of it."""
TRIES = 10
LISTENING_S = 30.0
CONNECTIONS = 1000
OPEN_FILES = 3 * CONNECTIONS + 1000

MUST_BROKER, AIM_BROKER = 1.15, 1.05
"""CPU of the broker on small requests, as a multiple of its CPU with the C relay."""
MUST_IDLE_MIB, AIM_IDLE_MIB = 50.0, 48.0
SETTLED_S = 8.0
"""Seconds after which a proxy without clients has returned what only its start needed."""
MUST_CONNECTION_KIB = 8.0


def case(name: str, arguments: str, unit: str, must: float, aim: float) -> Case:
    """A case by the words kload takes."""
    return Case(name, tuple(arguments.split()), unit, must, aim)


CASES = (
    case("latency-poll", "-k poll -n 5000", "request", 1.9, 1.15),
    case("latency-produce", "-k produce -b 100 -n 5000", "request", 1.9, 1.15),
    case("latency-metadata", "-k metadata -n 5000", "request", 2.2, 1.2),
    case("latency", "-k apiversions -n 5000", "request", 2.2, 1.7),
    case("pipelined", "-k poll -d 100 -n 50000", "request", 1.6, 1.4),
    case("connections", f"-k poll -c {CONNECTIONS} -w 1 -n 10000", "request", 1.8, 1.4),
    case("connections-all", f"-k poll -c {CONNECTIONS} -n 40000", "request", 1.6, 1.4),
    case("produce-raw", "-k produce -c 2 -d 5 -p 2 -b 1024 -r 63 -g 268435456", "GiB", 2.1, 1.1),
    case("fetch-raw", "-k fetch -c 2 -d 1 -p 2 -t data -b 1048576 -g 1073741824", "GiB", 1.25, 1.1),
)


def build(folder: Path, name: str, define: str | None = None) -> Path:
    """Compile one of the C programs in this folder, or its variant with this macro."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise SystemExit("error: a C compiler is needed (cc or gcc)")
    program = folder / (define or name).lower()
    macros = [f"-D{define}"] if define else []
    subprocess.run([compiler, "-O2", *macros, "-o", program, HERE / f"{name}.c"], check=True)
    return program


def wait_for(port: int) -> None:
    """Return when the port accepts connections."""
    end = time.monotonic() + LISTENING_S
    while time.monotonic() < end:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return
        time.sleep(0.2)
    raise SystemExit(f"error: nobody listens on port {port}")


def store(bootstrap: str, port: int, kload: Path, fill_bytes: int = FILL_BYTES) -> None:
    """Make the topics and store what is fetched later."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    small = {"retention.bytes": str(64 << 20), "segment.bytes": str(32 << 20)}
    topics = [NewTopic("bench", 2, 1, config=small), NewTopic("data", 2, 1, config={"retention.ms": "-1"})]
    for creation in admin.create_topics(topics).values():
        creation.result(30)
    arguments = f"-k produce -c 2 -d 5 -p 2 -t data -b 1024 -r 63 -g {fill_bytes}".split()
    for attempt in range(TRIES):
        try:
            load(kload, port, arguments)
        except LoadError:  # the leaders of new topics are not in office yet
            if attempt == TRIES - 1:
                raise
            time.sleep(0.5)
        else:
            return


def way_of(name: str, front: Front, cluster: Cluster) -> Way:
    """Through a proxy to the cluster's only broker."""
    assert front.child is not None
    return Way(name, front.first_port + cluster.nodes[0].node_id, front.child.pid)


class OtherBuild(Front):
    """A proxy of another checkout: earlier versions have no page that shows whether share groups are served."""

    def _serves(self) -> bool:
        return self.send_request("/readyz")[0]


@contextlib.contextmanager
def other(checkout: Path, cluster: Cluster, folder: Path) -> Iterator[Way]:
    """Through the proxy of another checkout."""
    command = [str(checkout.resolve() / ".venv" / "bin" / "kafka-share-proxy")]
    with OtherBuild(cluster.bootstrap, folder / f"proxy-{checkout.name}", command=command) as front:
        yield way_of(checkout.name, front, cluster)


@contextlib.contextmanager
def direct_ways(folder: Path, broker_port: int) -> Iterator[list[Way]]:
    """Through the relay, and through both lower bounds, each of which has no cluster to read first."""
    commands = {
        "relay": [str(build(folder, "relay"))],
        "frames": [str(build(folder, "relay", "FRAMES"))],
        "pump": [sys.executable, str(HERE / "pump_alone.py")],
    }
    environment = os.environ | {"PYTHONPATH": str(HERE.parents[1] / "proxy")}
    with contextlib.ExitStack() as stack:
        ways = []
        for name, command in commands.items():
            (port,) = free_ports(1)
            child = Child([*command, str(port), str(broker_port)], folder / f"{name}.log", environment)
            stack.callback(child.kill)
            wait_for(port)
            ways.append(Way(name, port, child.pid))
        yield ways


class Bench:
    """One broker and the ways to it: relay, lower bounds, proxy, and proxies of other builds."""

    def __init__(
        self,
        folder: Path,
        cluster: Cluster,
        front: Front,
        other_ways: Sequence[Way],
        direct: Sequence[Way],
        kload: Path,
    ) -> None:
        broker = cluster.nodes[0].child
        assert broker is not None
        self.kload = kload
        self.folder = folder
        self.broker_pid = broker.pid
        self.ways = {way.name: way for way in (*direct, way_of("proxy", front, cluster), *other_ways)}
        self.floors, self.other_ways = direct[1:], other_ways
        pid = self.ways["proxy"].pid
        time.sleep(SETTLED_S)
        self.idle_mib, self.idle_own_mib = rss_mib(pid), own_mib(pid)
        self.short_of: list[str] = []
        self.connection_kib: float | None = None
        """Resident memory of one more connection, once it was measured."""

    def run(self, cases: Sequence[Case], rounds: int, core: int, console: Console) -> None:
        """Measure, and print each result immediately."""
        table = Table(
            "case", "relay", "proxy", "x", "must", "aim", "broker x",
            *(f"{way.name} x" for way in self.floors), *(way.name for way in self.other_ways),
            title="CPU: us/request or s/GiB, median (range)",
        )  # fmt: skip
        with pinned([self.broker_pid, *(way.pid for way in self.ways.values())], core):
            for each in cases:
                console.print(f"{each.name} ...")
                forget(self.ways)
                measure(self.kload, each, list(self.ways.values()), self.broker_pid, rounds)
                self._row(table, each)
        console.print(table)
        for way in self.ways.values():
            for failure in way.failures:
                self.short_of.append(f"{way.name}: {failure}")

    def _row(self, table: Table, each: Case) -> None:
        relay, proxy = self.ways["relay"], self.ways["proxy"]
        times = middle(proxy.cpu) / middle(relay.cpu)
        broker = middle(proxy.broker_cpu) / middle(relay.broker_cpu)
        table.add_row(
            each.name, spread(relay.cpu), spread(proxy.cpu), _judged(times, each.must, each.aim),
            f"{each.must}", f"{each.aim}", _judged(broker, MUST_BROKER, AIM_BROKER) if each.unit == "request" else "",
            *(f"{middle(way.cpu) / middle(relay.cpu):.2f}" for way in self.floors),
            *(f"{spread(way.cpu)} {middle(way.cpu) / middle(relay.cpu):.2f} x" for way in self.other_ways),
        )  # fmt: skip
        if not times <= each.must:
            self.short_of.append(f"{each.name}: {times:.2f} x, must be at most {each.must}")
        if each.unit == "request" and not broker <= MUST_BROKER:
            self.short_of.append(f"{each.name}: broker {broker:.2f} x, must be at most {MUST_BROKER}")
        if each.name == "connections":
            self._memory(middle(proxy.own_mib))

    def _memory(self, busy_mib: float) -> None:
        each_kib = (busy_mib - self.idle_own_mib) * 1024 / CONNECTIONS
        if not each_kib <= MUST_CONNECTION_KIB:
            self.short_of.append(f"memory: {each_kib:.1f} KiB a connection, must be at most {MUST_CONNECTION_KIB:g}")
        self.connection_kib = each_kib

    def report(self, console: Console) -> int:
        """Return what is resident, what fell short; the exit status."""
        idle = _judged(self.idle_mib, MUST_IDLE_MIB, AIM_IDLE_MIB)
        console.print(f"resident: idle {idle} MiB (must {MUST_IDLE_MIB:g}, aim {AIM_IDLE_MIB:g})", end="")
        if self.connection_kib is not None:
            console.print(f", {self.connection_kib:.1f} KiB a connection (must {MUST_CONNECTION_KIB:g})", end="")
        console.print()
        if not self.idle_mib <= MUST_IDLE_MIB:
            self.short_of.append(f"memory: {self.idle_mib:.0f} MiB idle, must be at most {MUST_IDLE_MIB:g}")
        for line in self.short_of:
            console.print(f"[red]short of[/red] {line}")
        return 1 if self.short_of else 0


def _judged(value: float, must: float, aim: float) -> str:
    colour = "green" if value <= aim else "yellow" if value <= must else "red"
    return f"[{colour}]{value:.2f}[/{colour}]"


def main() -> int:
    """Everything; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="counted rounds of each case")
    parser.add_argument("--case", action="append", choices=[each.name for each in CASES], help="only these")
    parser.add_argument("--beside", action="append", type=Path, default=[], help="a checkout with a .venv of its own")
    parser.add_argument("--core", type=int, default=max(os.sched_getaffinity(0)), help="the core everything runs on")
    options = parser.parse_args()
    cases = [each for each in CASES if not options.case or each.name in options.case]
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(OPEN_FILES, hard)), hard))
    console = Console(width=max(Console().width, 120))
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        kload = build(folder, "kload")
        console.print(f"starting Kafka {RELEASE} and storing {FILL_BYTES / 1e9:.1f} GB ...")
        with Cluster(RELEASE, folder / "kafka", properties={"log.segment.bytes": str(1 << 30)}) as cluster:
            port = cluster.nodes[0].port
            store(cluster.bootstrap, port, kload)
            with Front(cluster.bootstrap, folder / "proxy") as front, contextlib.ExitStack() as fronts:
                other_ways = [fronts.enter_context(other(each, cluster, folder)) for each in options.beside]
                ways = fronts.enter_context(direct_ways(folder, port))
                bench = Bench(folder, cluster, front, other_ways, ways, kload)
                bench.run(cases, options.rounds, options.core, console)
    return bench.report(console)


if __name__ == "__main__":
    raise SystemExit(main())
