"""The programs in docs/trio.md: type checkers accept them and report misspellings, and Ctrl-C ends them in one line."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from kafka_share_proxy.localkafka.cluster import Cluster

from tests.support import documents, type_checker

Fresh = Callable[[str], str]
PLAIN, SHARED = "open_consumer(", "open_share_consumer("


def program(call: str) -> str:
    """Return the whole program of the page with a call."""
    (code,) = [each for each in documents.blocks(documents.TRIO, "python") if call in each and "trio.run(main)" in each]
    return code


def mypy(*programs: str) -> str:
    """Return the output of mypy, which is strict, for programs, with the package of this checkout."""
    files = [type_checker.program(f"program_{number}.py", text) for number, text in enumerate(programs)]
    return type_checker.mypy(*map(str, files))[1]


@pytest.mark.slow
@pytest.mark.xdist_group(type_checker.GROUP)
def test_type_checkers_accept_the_programs_and_report_misspelt_options() -> None:
    plain, shared = program(PLAIN), program(SHARED)
    misspelt = plain.replace('auto_offset_reset="earliest"', 'auto_offset_rest="earliest"')
    wrong_value = plain.replace('auto_offset_reset="earliest"', 'auto_offset_reset="newest"')
    wrong_type = shared.replace('acknowledgement_mode="explicit"', "max_poll_records=True, fetch_min_bytes=1.5")
    wrong_call = plain.replace("consumer.commit()", "consumer.comit()")
    reported = mypy(plain, shared, misspelt, wrong_value, wrong_type, wrong_call)
    by_file = {
        int(number): line
        for number, line in re.findall(r"^.*\bprogram_(\d)\.py:\d+: error: (.*)$", reported, re.MULTILINE)
    }
    assert by_file.keys() == {2, 3, 4, 5}, reported
    assert 'Unexpected keyword argument "auto_offset_rest"' in by_file[2]
    assert "Literal['earliest', 'latest', 'none']" in by_file[3]
    assert '"fetch_min_bytes"' in by_file[4]
    assert '"comit"' in by_file[5]


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Let children receive SIGINT: a shell starts what it runs in the background with the signal ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.broker
@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("call", [PLAIN, SHARED])
def test_ctrl_c_ends_a_program_in_one_line_and_leaves_the_group(
    kafka_43_quick: Cluster, fresh: Fresh, tmp_path: Path, call: str
) -> None:
    topic, group = fresh("orders"), fresh("group")
    text = program(call).replace("kafka-1:9092", kafka_43_quick.bootstrap).replace('"orders"', f'"{topic}"')
    text = re.sub(r'group="\w+"', f'group="{group}"', text)
    path = tmp_path / "program.py"
    path.write_text(text)
    lines: list[str] = []
    producer = Producer({"bootstrap.servers": kafka_43_quick.bootstrap, "log_level": 2})
    running = subprocess.Popen(
        [sys.executable, "-u", str(path)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        reader = threading.Thread(target=lambda: lines.extend(running.stdout or ()), daemon=True)
        reader.start()
        until = time.monotonic() + 60
        while not any("b'value'" in each for each in lines) and time.monotonic() < until:
            producer.produce(topic, b"value")  # a new share group begins at the end
            producer.flush(10)
            time.sleep(0.2)
        running.send_signal(signal.SIGINT)
        running.wait(timeout=40)
        reader.join(10)
    finally:
        running.kill()
        running.communicate()
    assert running.returncode == 0
    assert any("b'value'" in each for each in lines)
    assert [each for each in lines if "b'value'" not in each and "does not exist" not in each] == ["stopped\n"]
