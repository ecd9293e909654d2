"""Check an installed wheel: version, commit, kernels in C, the bill of materials, and that the command starts.

    python deploy/release/installed.py        # with the Python of the environment; exit status 0 if all holds

Run by cibuildwheel for every wheel, and by tests/deploy/test_distributions.py.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata

DISTRIBUTION = "kafka-share-proxy"
BILL = "sboms/kafka_share_proxy.cdx.json"
RUN_S = 60


def faults() -> Iterator[str]:
    """Yield what is wrong with the installation."""
    version = metadata.version(DISTRIBUTION)
    output = _output("--version")
    if not output.startswith(f"{DISTRIBUTION} {version}, commit "):
        yield f"--version says: {output}"
    if not output.strip().endswith("kernels in C"):
        yield f"kernels are not in C: {output}"
    bill = metadata.distribution(DISTRIBUTION).read_text(BILL)
    if bill is None:
        yield f"the bill of materials {BILL} is missing"
    elif json.loads(bill)["metadata"]["component"]["version"] != version:
        yield "the bill of materials has another version"
    if "bootstrap" not in _output("serve", "--help"):
        yield f"`serve` does not start: {_output('serve', '--help')}"


def _output(*words: str) -> str:
    command = [sys.executable, "-I", "-m", "kafka_share_proxy", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_S, check=False)
    return done.stdout + done.stderr


def main() -> int:
    """Print faults; 1 if there are any."""
    all_faults = list(faults())
    for fault in all_faults:
        print(fault, file=sys.stderr)
    if not all_faults:
        print(_output("--version").strip())
    return int(bool(all_faults))


if __name__ == "__main__":
    sys.exit(main())
