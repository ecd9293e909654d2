"""A share group survives a rolling restart, as well as on brokers that have share groups themselves.

    tests/soak/rolling [--seconds 180] [--rate 500] [--partitions 6] [--overlapping] [--only proxy|native]

Three brokers, replication 3, at least two in sync; records at a steady rate; four members on the stock Java client that
acknowledge each record (explicit mode). The brokers are ended in turn, by SIGTERM and SIGKILL, every 10 seconds, and
started again; with --overlapping whether or not the last one is in sync again, which brokers themselves bear badly: for
a while none of them listens. First Kafka 3.9.1 behind the proxy, then Kafka 4.3.0. Both have to show:

- no record is delivered after a member was told that it is settled, none is settled twice, none is never settled;
- the longest time without any settled record is no longer through the proxy than natively.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "deploy"))

from localkafka.cluster import Cluster
from localkafka.front import Front

from tests.support.brokers import NEW, OLD
from tests.support.rolling import Outcome, Plan, Rolling, report
from tests.support.worlds import warm_up

NODES = 3


def through_the_proxy(folder: Path, plan: Plan) -> Outcome:
    with (
        Cluster(OLD, folder / "kafka", nodes=NODES) as kafka,
        Front(kafka.bootstrap, folder / "proxy") as front,
    ):
        outcome = Rolling(kafka, front.bootstrap, folder, plan).run()
        if outcome.faults():
            print(front.output())
    return outcome


def native(folder: Path, plan: Plan) -> Outcome:
    with Cluster(NEW, folder / "kafka", nodes=NODES) as kafka:
        warm_up(kafka.bootstrap)
        return Rolling(kafka, kafka.bootstrap, folder, plan).run()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=180)
    parser.add_argument("--rate", type=int, default=500)
    parser.add_argument("--partitions", type=int, default=6)
    parser.add_argument(
        "--overlapping", action="store_true", help="end a broker every 10 s, though the last one is not in sync again"
    )
    parser.add_argument("--only", choices=["proxy", "native"])
    parser.add_argument("--keep", type=Path, help="a folder for the logs, which stays")
    asked = parser.parse_args()
    plan = Plan(seconds=asked.seconds, rate=asked.rate, partitions=asked.partitions, in_sync=not asked.overlapping)
    runs = {"proxy": through_the_proxy, "native": native}
    outcomes: dict[str, Outcome] = {}
    with tempfile.TemporaryDirectory() as temporary:
        for name in [asked.only] if asked.only else list(runs):
            outcomes[name] = runs[name]((asked.keep or Path(temporary)) / name, plan)
            report(name, outcomes[name])
    raise SystemExit(verdict(outcomes))


def verdict(outcomes: dict[str, Outcome]) -> bool:
    """Whether something is wrong.

    While a crashed broker is not missed yet (broker.session.timeout.ms), or controllers elect, brokers take no record,
    of producers or of share state; that time differs from crash to crash by seconds, and is no proxy's doing. So longer
    is wrong where what share groups add to it is longer, too.
    """
    wrong = any(outcome.faults() for outcome in outcomes.values())
    if len(outcomes) == 1:
        return wrong
    ours, theirs = outcomes["proxy"], outcomes["native"]
    print("\nlongest time without a settled record, and what share groups add at most:")
    for name, outcome in outcomes.items():
        print(f"  {name}: {outcome.longest_gap_s():.2f} s, {outcome.longest_beyond_s():.2f} s")
    longer = ours.longest_gap_s() > theirs.longest_gap_s()
    return wrong or (longer and ours.longest_beyond_s() > theirs.longest_beyond_s())


if __name__ == "__main__":
    main()
