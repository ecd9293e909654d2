"""Long storms over the share coordinator: `python -m tests.storm.run [--steps 1000000] [--seed 0] [--tiny 4]`.

Runs one seed after the other, 500 steps each, until this many steps are done; a failure names its seed, which `--seed S
--steps 500` repeats. `--logs` puts the product's writer and hostile leaders under it. `--tiny N` goes through every
story of N steps of a tiny world instead. `--commits`: individual commits of one partition, against sets of offsets.
`--order`: groups with key order, which is switched off and on. `--delays`: groups with redelivery delay, alike.
"""

from __future__ import annotations

import argparse
import time

from tests.sharegroups.model.world import RandomChooser
from tests.support import storm, storm_admin, storm_commits, storm_delays, storm_order

STEPS_EACH = 500


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0, help="the first")
    parser.add_argument(
        "--tiny", type=int, metavar="STEPS", help="every story of so many steps; 4 take a minute or two"
    )
    parser.add_argument("--logs", action="store_true", help="over logs whose leaders append and then answer errors")
    parser.add_argument("--order", action="store_true", help="over groups with key order")
    parser.add_argument("--delays", action="store_true", help="over groups with redelivery delay")
    parser.add_argument("--commits", action="store_true", help="individual commits in place of share groups")
    arguments = parser.parse_args()
    kinds = {"logs": storm_admin.run_over_logs, "order": storm_order.run, "delays": storm_delays.run}
    kind = next((name for name in kinds if getattr(arguments, name)), None)
    one_storm = storm_admin.run if kind is None else kinds[kind]
    began = time.monotonic()
    if arguments.commits:
        count = max(1, arguments.steps // STEPS_EACH)
        for seed in range(arguments.seed, arguments.seed + count):
            storm_commits.run(seed, STEPS_EACH)
        print(f"{count * STEPS_EACH:,} steps of commits, seeds {arguments.seed}-{arguments.seed + count - 1}", end="")
    elif arguments.tiny is not None:
        print(f"{storm.every_tiny_storm(arguments.tiny):,} stories", end="")
    else:
        seeds = range(arguments.seed, arguments.seed + max(1, arguments.steps // STEPS_EACH))
        records = 0
        for seed in seeds:
            try:
                records += sum(p.end for p in one_storm(RandomChooser(seed), STEPS_EACH).partitions)
            except Exception as error:
                error.add_note(
                    f"seed {seed}: python -m tests.storm.run --seed {seed} --steps {STEPS_EACH}"
                    f"{'' if kind is None else f' --{kind}'}"
                )
                raise
        print(f"{len(seeds) * STEPS_EACH:,} steps, seeds {seeds[0]}-{seeds[-1]}, {records:,} records", end="")
    print(f", {time.monotonic() - began:.0f} s, nothing broken")


if __name__ == "__main__":
    main()
