"""A cluster that runs in a thread, for tests that do not use Trio."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import trio

from kafka_share_proxy.conformance.judge import reports
from kafka_share_proxy.conformance.target import cluster_report
from kafka_share_proxy.conformance.target.server import TargetOptions, TargetServer, open_target

T = TypeVar("T")

CLOSE_TIMEOUT_S = 10.0
"""Seconds that the end of the thread is waited for."""


def _with_dots(configs: Mapping[str, str | int]) -> dict[str, str | int]:
    """Return settings by the names that Kafka has for them."""
    return {name.replace("_", "."): value for name, value in configs.items()}


class FindingsError(AssertionError):
    """A client violated rules of the protocol."""


class KafkaCluster:
    """A cluster in one process. Every method may be called from any thread that runs no Trio loop."""

    def __init__(self, server: TargetServer, token: trio.lowlevel.TrioToken) -> None:
        self._server = server
        self._token = token
        self.bootstrap = server.bootstrap
        """Addresses of all nodes, for `bootstrap.servers`."""

    def do(self, path: str, /, **values: Any) -> dict[str, Any]:
        """Do an action of the HTTP control, such as `do("leaders/move", topic="orders", node=2)`.

        Raises actions.ActionError.
        """
        from kafka_share_proxy.conformance.target.actions import Action  # pydantic is slow to import

        return self._run(Action(path, values).apply, self._server)

    def create_topic(self, name: str, partitions: int = 1, **configs: str | int) -> str:
        """Create a topic and return its name. Settings have `_` for the dots. Raises actions.ActionError."""
        self.do("topics", name=name, partitions=partitions, configs=_with_dots(configs))
        return name

    def append(self, topic: str, *values: str, partition: int = 0, key: str | None = None) -> int:
        """Append records without a producer. Return the offset of the first. Raises actions.ActionError."""
        offset: int = self.do(f"topics/{topic}/records", values=values, partition=partition, key=key)["offset"]
        return offset

    def configure_group(self, group: str, **configs: str | int) -> None:
        """Set settings of a group, with `_` for the dots: `share_auto_offset_reset="earliest"`.

        Raises actions.ActionError.
        """
        self.do("groups/configs", group=group, configs=_with_dots(configs))

    def move_leader(self, topic: str, partition: int, node: int) -> None:
        """Let another node lead a partition. Raises actions.ActionError."""
        self.do("leaders/move", topic=topic, partition=partition, node=node)

    def move_coordinator(self, group: str, node: int) -> None:
        """Let another node coordinate a group. Raises actions.ActionError."""
        self.do("coordinators/move", key=group, node=node)

    def take_node_down(self, node: int) -> None:
        """Close the connections to a node, and refuse new ones. Raises actions.ActionError."""
        self.do(f"nodes/{node}/down")

    def bring_node_up(self, node: int) -> None:
        """Accept connections to a node again. Raises actions.ActionError."""
        self.do(f"nodes/{node}/up")

    def stop_clock(self) -> None:
        """Let the time of the cluster stand still."""
        self.do("clock/stop")

    def resume_clock(self) -> None:
        """Let the time of the cluster pass again."""
        self.do("clock/resume")

    def advance_clock(self, seconds: float) -> None:
        """Move the time of the cluster forward: locks, sessions and throttles expire."""
        self.do("clock/advance", ms=round(seconds * 1000))

    def state(self) -> dict[str, Any]:
        """Return nodes, topics, leaders, clock and faults."""
        return self._call(lambda: cluster_report.state(self._server))

    def findings(self) -> list[dict[str, Any]]:
        """Return what the clients have done wrong so far, each with its rule and the decoded request."""
        findings: list[dict[str, Any]] = self._call(lambda: reports.as_json(self._server.findings()))["findings"]
        return findings

    def check_findings(self, *allowed: str) -> None:
        """Raise FindingsError if a client violated a rule of severity "error", except the rules with these ids."""
        wrong = [
            finding for finding in self.findings() if finding["severity"] == "error" and finding["rule"] not in allowed
        ]
        if wrong:
            raise FindingsError("\n".join(f"{finding['rule']}: {finding['detail']}" for finding in wrong))

    def failures(self) -> list[BaseException]:
        """Return errors of the cluster itself."""
        return self._call(lambda: list(self._server.failures))

    def _run(self, function: Callable[..., Awaitable[T]], *args: Any) -> T:
        return trio.from_thread.run(function, *args, trio_token=self._token)

    def _call(self, function: Callable[[], T]) -> T:
        return trio.from_thread.run_sync(function, trio_token=self._token)


class KafkaFaults:
    """Faults of a cluster."""

    def __init__(self, cluster: KafkaCluster) -> None:
        self._cluster = cluster

    def add(self, **fault: Any) -> int:
        """Add a fault, such as `add(api="Produce", error="NOT_ENOUGH_REPLICAS", count=2)`. Return its number.

        Raises actions.ActionError.
        """
        number: int = self._cluster.do("faults", **fault)["number"]
        return number

    def remove(self, number: int) -> None:
        """Remove a fault. Raises actions.ActionError."""
        self._cluster.do(f"faults/{number}/delete")

    def clear(self) -> None:
        """Remove all faults."""
        self._cluster.do("faults/clear")

    def applied(self, number: int) -> int:
        """Return the number of requests that a fault has affected. Raises KeyError for an unknown fault."""
        counts = {fault["number"]: fault["applied"] for fault in self._cluster.state()["faults"]}
        return int(counts[number])


@contextmanager
def running_cluster(options: TargetOptions | None = None) -> Iterator[KafkaCluster]:
    """Run a cluster in a thread inside the block. Raises what the start of the cluster raises."""
    thread = _ClusterThread(options or TargetOptions())
    try:
        yield thread.start()
    finally:
        thread.stop()


class _ClusterThread:
    def __init__(self, options: TargetOptions) -> None:
        self._options = options
        self._ready = threading.Event()
        self._cluster: KafkaCluster | None = None
        self._stop: Callable[[], None] = lambda: None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="kafka-cluster", daemon=True)

    def start(self) -> KafkaCluster:
        self._thread.start()
        self._ready.wait()
        if self._cluster is None:
            raise self._error or RuntimeError("the cluster has not started")
        return self._cluster

    def stop(self) -> None:
        self._stop()
        self._thread.join(CLOSE_TIMEOUT_S)

    def _run(self) -> None:
        try:
            trio.run(self._serve)
        except BaseException as error:  # the thread that starts the cluster raises it
            self._error = error
            if self._ready.is_set():
                raise
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        ended = trio.Event()
        token = trio.lowlevel.current_trio_token()
        async with open_target(self._options) as server:
            self._stop = lambda: token.run_sync_soon(ended.set)
            self._cluster = KafkaCluster(server, token)
            self._ready.set()
            await ended.wait()
