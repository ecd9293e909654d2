"""A share group survives a rolling restart, as well as on brokers that have share groups themselves.

    tests/soak/rolling [--seconds 180] [--rate 500] [--partitions 6] [--overlapping] [--crash SIGSTOP] [--only NAME]
        [--keep FOLDER]

Three brokers, replication 3, at least two in sync; records at a steady rate; four members on the stock Java client that
acknowledge each record (explicit mode). The brokers are ended in turn, by SIGTERM and SIGKILL, every 10 seconds or as
soon as the last one is in sync again, and started again; with --overlapping whether or not it is in sync, which brokers
themselves bear badly: for a while none of them listens. With --crash SIGSTOP a crash is a machine or a network that is
lost: no connection ends, and the broker continues later as if nothing had been. Three runs, one after the other:

- proxy: Kafka 4.3.0 with the proxy, which serves the group;
- native: the same brokers, which serve the group themselves;
- proxy-3.9: Kafka 3.9.1 with the proxy.

All have to show that no record is delivered after a member saw it settled, none is settled twice, none is never
settled. The longest time without any settled record may not be longer in `proxy` than in `native`. Brokers take no
record at all while they do not miss one that crashed, so most of it is theirs; the line below each end says what
happened when.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "proxy"))

from kafka_share_proxy.localkafka.cluster import Cluster
from kafka_share_proxy.localkafka.front import Front

from tests.support.brokers import NEW, OLD
from tests.support.rolling import Outcome, Plan, Rolling, report
from tests.support.worlds import warm_up

BROKERS: dict[str, Any] = {
    "nodes": 3,
    "controller_apart": True,
    "properties": {"broker.heartbeat.interval.ms": "500"},
}
"""So that all crashes are missed after about the same time, which would be luck otherwise: 9 s after a broker was last
heard of (broker.session.timeout.ms), which is every 2 s by default; a controller that crashes is replaced first."""
CRASHED_S = 12.0
"""How long a broker that crashed is away, for the same reason: one that is back before it is missed continues."""
ALIKE_S = 0.5
"""Difference between two crashes on the same side: the heartbeat interval."""


def through_the_proxy(folder: Path, plan: Plan, release: str = NEW) -> Outcome:
    settings = {"share_groups": {"serve": "local"}}
    with (
        Cluster(release, folder / "kafka", **BROKERS) as kafka,
        Front(kafka.bootstrap, folder / "proxy", settings) as front,
    ):
        outcome = Rolling(kafka, front.bootstrap, folder, plan, lambda: _refusal(front)).run()
        if outcome.faults():
            print(front.output())
    return outcome


def _refusal(front: Front) -> str:
    ready, text = front.send_request("/readyz/share-groups")
    return "" if ready else text


def native(folder: Path, plan: Plan) -> Outcome:
    with Cluster(NEW, folder / "kafka", **BROKERS) as kafka:
        warm_up(kafka.bootstrap)
        return Rolling(kafka, kafka.bootstrap, folder, plan).run()


RUNS: dict[str, Callable[[Path, Plan], Outcome]] = {
    "proxy": through_the_proxy,
    "native": native,
    "proxy-3.9": partial(through_the_proxy, release=OLD),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=180)
    parser.add_argument("--rate", type=int, default=500)
    parser.add_argument("--partitions", type=int, default=6)
    parser.add_argument(
        "--overlapping", action="store_true", help="end a broker every 10 s, though the last one is not in sync again"
    )
    parser.add_argument("--crash", choices=("SIGKILL", "SIGSTOP"), default="SIGKILL")
    parser.add_argument("--only", choices=RUNS, action="append", help="may be repeated")
    parser.add_argument("--keep", type=Path, help="a folder for the logs, which stays")
    arguments = parser.parse_args()
    plan = Plan(
        seconds=arguments.seconds,
        crashed_s=CRASHED_S,
        rate=arguments.rate,
        partitions=arguments.partitions,
        in_sync=not arguments.overlapping,
        crash=arguments.crash,
    )
    outcomes: dict[str, Outcome] = {}
    with tempfile.TemporaryDirectory() as temporary:
        for name in arguments.only or RUNS:
            outcomes[name] = RUNS[name]((arguments.keep or Path(temporary)) / name, plan)
            report(name, outcomes[name])
    raise SystemExit(verdict(outcomes))


def verdict(outcomes: Mapping[str, Outcome]) -> bool:
    """True if something is wrong."""
    wrong = any(outcome.faults() for outcome in outcomes.values())
    print("\nlongest time without a settled record, and after a crash was missed:")
    for name, outcome in outcomes.items():
        print(f"  {name:>9}: {outcome.longest_gap_s():5.2f} s, {outcome.longest_after_s():5.2f} s")
    if not {"proxy", "native"} <= outcomes.keys():
        return wrong
    beyond_s = outcomes["proxy"].longest_gap_s() - outcomes["native"].longest_gap_s()
    if beyond_s > ALIKE_S:
        print(f"WRONG: {beyond_s:.2f} s longer through the proxy than natively; up to {ALIKE_S} s is chance")
    return wrong or beyond_s > ALIKE_S


if __name__ == "__main__":
    main()
