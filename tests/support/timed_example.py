"""The example for confluent-kafka, telling when it worked: `begin` and `end`, CLOCK_MONOTONIC, partition and offset.

    python timed_example.py EXAMPLES BOOTSTRAP TOPIC GROUP

The clock is that of the machine, so what several members print can be put in order.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
from typing import Any


def main() -> None:
    """Run as a command."""
    sys.path.insert(0, sys.argv.pop(1))
    example = importlib.import_module("individual_commits_confluent")

    def reported(kind: str, message: Any) -> None:
        line = f"{kind} {time.monotonic()} {message.partition()} {message.offset()}\n"
        os.write(1, line.encode())  # whole, whatever other threads write, and before a process is killed

    def work(message: Any, _: float) -> None:
        reported("begin", message)
        time.sleep(float(message.value()))
        reported("end", message)

    vars(example)["work"] = work
    example.main()


if __name__ == "__main__":
    main()
