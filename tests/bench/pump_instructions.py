"""Count the instructions of the pump for a request with its response, by callgrind: exact on a busy machine.

    python -m tests.bench.pump_instructions [--beside CHECKOUT ...]

The pump and the walks run alone, in a process with both ends of the connections (`pump_loads`), and only
`forwarding/walk/_pump.c` counts, with what it calls. So nothing idle has to be subtracted, unlike in
`tests.bench.instructions`, which counts a whole proxy. The least of several portions is printed: in the others the
process was interrupted for so long that the pump reported it. About a minute for each checkout.

The kernel's work, which is most of the CPU time of a small request, is not counted. Needs valgrind.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

HERE = Path(__file__).resolve().parent
PAIRS, PORTIONS = 10, 20
RUN_MAX_S = 900.0
_ITERATE = re.compile(r'\{"iterate", (\w+),')
"""How the extension names its function in C for `Pump.iterate`."""
_NAME = re.compile(r"^desc: Trigger: dump (\S+)", re.MULTILINE)
_TOTAL = re.compile(r"^totals: (\d+)", re.MULTILINE)


def pump_function(checkout: Path) -> str:
    """Name of the function in C that counts: one wait of the pump, with all that it calls. Raises SystemExit."""
    source = checkout / "proxy" / "kafka_share_proxy" / "forwarding" / "walk" / "_pump.c"
    named = _ITERATE.search(source.read_text(encoding="utf-8"))
    if named is None:
        raise SystemExit(f"error: {source} has no `iterate`: use a newer checkout")
    return named[1]


def counted(checkout: Path, folder: Path) -> dict[str, int]:
    """Instructions of a request with its response, by case. Raises SystemExit with what the run printed."""
    out = folder / "callgrind.out"
    tool = ["valgrind", "--tool=callgrind", "--instr-atstart=no", f"--toggle-collect={pump_function(checkout)}"]
    python = str(checkout.resolve() / ".venv" / "bin" / "python")
    command = [*tool, f"--callgrind-out-file={out}", python, str(HERE / "pump_loads.py"), str(PAIRS), str(PORTIONS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_MAX_S, check=False)
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
    least: dict[str, int] = {}
    for dump in sorted(folder.glob(f"{out.name}.*")):
        text = dump.read_text()
        name, total = _NAME.search(text), _TOTAL.search(text)
        if name is not None and total is not None:
            pair = int(total[1]) // PAIRS
            least[name[1]] = min(pair, least.get(name[1], pair))
    if not all(least.values()):
        raise SystemExit(f"error: callgrind counted nothing in {checkout}")
    return least


def report(names: Sequence[str], counts: Sequence[dict[str, int]]) -> None:
    """Print one line for each case; the last columns: this checkout as a multiple of each other one."""
    table = Table("case", *names, *(f"x {name}" for name in names[1:]), title="instructions of the pump")
    for case, here in counts[0].items():
        other_counts = [each[case] for each in counts[1:]]
        times = [f"{here / other:.3f}" for other in other_counts]
        table.add_row(case, *(f"{count:,}" for count in (here, *other_counts)), *times)
    Console(width=120).print(table)


def main() -> None:
    """Count one checkout after the other, and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--beside", action="append", type=Path, default=[], help="a checkout with a .venv of its own")
    options = parser.parse_args()
    if shutil.which("callgrind_control") is None:
        raise SystemExit("error: valgrind is needed (Debian: apt install valgrind)")
    checkouts = [HERE.parents[1], *options.beside]
    counts = []
    for checkout in checkouts:
        with tempfile.TemporaryDirectory(prefix="bench-") as name:
            counts.append(counted(checkout, Path(name)))
    report(["this", *(checkout.name for checkout in checkouts[1:])], counts)


if __name__ == "__main__":
    main()
