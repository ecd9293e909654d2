"""Command `pipeline demo`: the whole pipeline on a temporary Kafka, explained step by step.

The steps are traffic, the proxy's audit events about it, tables, a plan of key ranges, the view by that plan, and a
report. Each step runs the command that it shows.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from rich.console import Console
from rich.table import Table

from kafka_share_proxy.app.commands import demo_topics
from kafka_share_proxy.app.commands import demo_traffic as traffic
from kafka_share_proxy.localkafka import jars, java
from kafka_share_proxy.localkafka.cluster import SMALL, BrokerError, Cluster
from kafka_share_proxy.localkafka.front import Front, FrontError, installed_command
from kafka_share_proxy.wire.errors import ProxyError

RELEASE = "3.9.1"
TOPIC, PARTITIONS = "orders", 2
GROUP = "billing"
MEMBERS = {"ann": traffic.accepts, "ben": traffic.releases, "carla": traffic.forgets, "dave": traffic.renews}
MEMBERS_DO = "ann accepts all,\nben releases some, carla hangs until locks run out, dave renews the locks of slow jobs."
PLAN = "demo"
SLOTS = 8
RECORDS, LATER_RECORDS = 60_000, 30_000
"""Number of records produced before and after the plan is made."""
LATER_MAY_ADD = 0.05
"""Tolerance for later records: the bound of a plan holds for the load from which it was made."""
TRAFFIC_S, COMMAND_S = 180.0, 600.0
REPORT_S = 3.0
"""Seconds to wait for the load of the last second, which the proxy reports when that second is over."""
EVEN, PLANNED = f"__view.r{SLOTS}.{TOPIC}", f"__view.p{PLAN}.{TOPIC}"
BAR = 40


class DemoFailed(ProxyError):
    """A step did not have the expected result. The text has the details."""


def run(folder: Path, *, keep: bool) -> None:
    """Run the demonstration.

    Args:
        folder: for the results: audit files, tables, the plan, the report. Must be empty or absent.
        keep: leave Kafka and the proxy running at the end, until interrupted.

    Raises:
        DemoFailed: a step failed. KeyboardInterrupt: by Ctrl-C or SIGTERM, after all started processes have ended.
    """
    if folder.is_dir() and any(folder.iterdir()):
        raise DemoFailed(f"{folder} is not empty: name another folder with --out, or remove it")
    handler = signal.signal(signal.SIGTERM, _interrupted)
    try:
        (folder / "audit").mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            _Demo(stack, folder, Console(highlight=False, soft_wrap=True)).run(keep)
    except (BrokerError, FrontError, ProxyError, jars.JarError, java.NoJavaError, OSError) as error:
        raise DemoFailed(str(error)) from error
    finally:
        signal.signal(signal.SIGTERM, handler)


def _interrupted(_number: int, _: FrameType | None) -> None:
    raise KeyboardInterrupt


@dataclass
class _Demo:
    """Common data of the steps."""

    stack: ExitStack
    folder: Path
    out: Console
    keys: traffic.ZipfKeys = field(default_factory=traffic.ZipfKeys)

    def run(self, keep: bool) -> None:
        began = time.monotonic()
        java.find_java()
        jars.class_path(RELEASE, console=self.out)
        kafka, proxy = self._start()
        even = self._traffic(kafka, proxy)
        self._audit()
        promise = self._plan(kafka)
        shares = self._read_by_plan(kafka, proxy)
        self._compare(even, promise, shares)
        self._report()
        self.out.rule(align="left")
        self.out.print(
            f"That was the loop, in {time.monotonic() - began:.0f} s. Everything it made is in {self.folder}."
        )
        if keep:
            self._stay(proxy)

    # Steps

    def _start(self) -> tuple[Cluster, Front]:
        self._title("1. A Kafka, and the proxy in front of it, which writes down what happens")
        home = Path(self.stack.enter_context(tempfile.TemporaryDirectory(prefix="kafka-share-proxy-")))
        with self.out.status(f"Starting Kafka {RELEASE} ..."):
            kafka = self.stack.enter_context(Cluster(RELEASE, home / "kafka", java_options=SMALL))
        with self.out.status("Starting the proxy ..."):
            proxy = self.stack.enter_context(Front(kafka.bootstrap, home / "proxy", self._settings()))
        self.out.print(f"Kafka {RELEASE}, which has no share groups: {kafka.bootstrap}; the proxy: {proxy.bootstrap}")
        self.out.print(f"audit.file is {self.folder / 'audit' / 'audit.jsonl'}")
        return kafka, proxy

    def _settings(self) -> Mapping[str, Any]:
        bounds = {"group.share.min.record.lock.duration.ms": "1000", "group.share.assignment.interval.ms": "0"}
        audit = {"file": str((self.folder / "audit" / "audit.jsonl").absolute())}
        return {
            "share_groups": {"broker": bounds},
            "views": {"growth_interval_s": 1},
            "audit": {**audit, "load_interval_s": 1},
        }

    def _traffic(self, kafka: Cluster, proxy: Front) -> list[float]:
        """Return the shares of the ranges."""
        self._title(f"2. Traffic: {RECORDS:,} records, of whose keys a few are hot (Zipf)")
        demo_topics.create_topic(proxy.bootstrap, TOPIC, PARTITIONS)
        lock = {"share.record.lock.duration.ms": str(int(traffic.LOCK_S * 1000))}
        demo_topics.configure_group(proxy.bootstrap, GROUP, {"share.auto.offset.reset": "earliest", **lock})
        self._command("views", "create", EVEN, "--upstream", kafka.bootstrap)
        self.out.print(f"Share group {GROUP}, locks of {traffic.LOCK_S:.0f} s: {MEMBERS_DO}")
        members = [traffic.DemoMember(name, proxy.bootstrap, GROUP, TOPIC, habit) for name, habit in MEMBERS.items()]
        readers = [traffic.ViewReader(f"reader-{number}", proxy.bootstrap, "even", EVEN) for number in range(2)]
        with self._running(members), self._running(readers):
            traffic.produce(proxy.bootstrap, TOPIC, self.keys.drawn(RECORDS))
            self._wait(members, RECORDS, f"records accepted by group {GROUP}")
            self._wait(readers, RECORDS, f"records read through {EVEN}")
        for member in members:
            self.out.print(f"  {member.name:5} accepted {len(member.got):6,} in {member.polls} polls")
        even = traffic.shares_of_slots(readers, SLOTS)
        self.out.print(f"{EVEN}: {SLOTS} even key ranges; the heaviest has {max(even) * SLOTS:.3f} x the mean.")
        time.sleep(REPORT_S)
        return even

    def _audit(self) -> None:
        self._title("3. What the proxy wrote down, as tables (a Spark job)")
        self._command("pipeline", "audit", "--in", str(self.folder / "audit"), "--out", str(self.folder / "lake"))

    def _plan(self, kafka: Cluster) -> float:
        """Return the maximum share that the plan promises."""
        self._title(f"4. A plan: {SLOTS} key ranges of about equal load, stored for views")
        file = self.folder / "range_plan.json"
        source = ("--from", str(self.folder / "lake"), "--topic", TOPIC, "-n", str(SLOTS), "-o", str(file))
        self._command("pipeline", "plan", *source, "--store", PLAN, "--upstream", kafka.bootstrap)
        return float(json.loads(file.read_text())["bound"]["at_most"])

    def _read_by_plan(self, kafka: Cluster, proxy: Front) -> list[float]:
        """Return the shares of the ranges."""
        self._title(f"5. The view by that plan, and a group of {SLOTS} stock consumers on it")
        self._command("views", "create", PLANNED, "--upstream", kafka.bootstrap)
        self.out.print(f'{LATER_RECORDS:,} more records, which the plan has not seen; then subscribe("{PLANNED}")')
        traffic.produce(proxy.bootstrap, TOPIC, self.keys.drawn(LATER_RECORDS))
        readers = [
            traffic.ViewReader(f"planned-{number}", proxy.bootstrap, "planned", PLANNED) for number in range(SLOTS)
        ]
        with self._running(readers):
            self._wait(readers, RECORDS + LATER_RECORDS, f"records read through {PLANNED}")
        return traffic.shares_of_slots(readers, SLOTS)

    def _compare(self, even: Sequence[float], promise: float, shares: Sequence[float]) -> None:
        table = Table("range", "even", "planned", "", title="share of the records", title_justify="left")
        for number, (before, now) in enumerate(zip(even, shares, strict=True)):
            table.add_row(str(number), f"{before:6.1%}", f"{now:6.1%}", "#" * round(now * SLOTS * BAR / 2))
        self.out.print(table)
        measured = max(shares) * SLOTS
        self.out.print(f"heaviest range / mean:  even {max(even) * SLOTS:.3f}")
        self.out.print(f"                        the plan promised at most {promise:.3f}, measured {measured:.3f}")
        if measured > promise * (1 + LATER_MAY_ADD):
            raise DemoFailed(f"the plan promised at most {promise:.3f}, and consumers measured {measured:.3f}")

    def _report(self) -> None:
        self._title("6. A report of all of it")
        page = self.folder / "report.html"
        source = ("--from", str(self.folder / "lake"), "-n", str(SLOTS))
        self._command("pipeline", "report", *source, "--html", str(page))
        self.out.print(f"Open {page} in a browser.")

    def _stay(self, proxy: Front) -> None:
        self.out.print(f"Try it: bootstrap.servers={proxy.bootstrap}   (Ctrl-C ends everything)")
        threading.Event().wait()

    # Helpers

    def _title(self, text: str) -> None:
        self.out.print()
        self.out.rule(text, align="left")

    @contextmanager
    def _running(self, clients: Sequence[traffic.Client]) -> Iterator[None]:
        """Run the clients. All are stopped before the first one is joined."""
        with ExitStack() as stack:
            for client in clients:
                stack.enter_context(client)
            try:
                yield
            finally:
                for client in clients:
                    client.end()

    def _wait(self, clients: Sequence[traffic.Client], count: int, unit: str) -> None:
        with self.out.status("") as shown:
            for processed in traffic.until_done(clients, count, TRAFFIC_S):
                shown.update(f"{processed:,} of {count:,} {unit}")
        self.out.print(f"{count:,} {unit}")

    def _command(self, *arguments: str) -> None:
        """Raises DemoFailed with the output."""
        self.out.print(f"$ kafka-share-proxy {shlex.join(arguments)}", style="bold", markup=False)
        log = self.folder / f"{'-'.join(arguments[:2])}.log"
        began = time.monotonic()
        environment = {name: value for name, value in os.environ.items() if not name.startswith("KSP_")}
        with (
            log.open("ab") as errors,
            self.out.status("..."),
            subprocess.Popen(  # noqa: S603 - this program
                [*installed_command(), *arguments], stdout=subprocess.PIPE, stderr=errors, text=True, env=environment
            ) as process,
            _ended(process),
        ):
            for line in process.stdout or ():
                self.out.print(f"  {line.rstrip()}", markup=False)
        self.out.print(f"  ({time.monotonic() - began:.0f} s)", style="dim")
        if process.returncode:
            raise DemoFailed(f"it ended with status {process.returncode}:\n{log.read_text()[-2_000:]}")


@contextmanager
def _ended(process: subprocess.Popen[str]) -> Iterator[None]:
    """Terminate, or kill after COMMAND_S."""
    timer = threading.Timer(COMMAND_S, process.kill)
    timer.start()
    try:
        yield
        process.wait()
    finally:
        timer.cancel()
        if process.poll() is None:
            process.terminate()
            process.wait()
