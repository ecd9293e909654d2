"""The programs of docs/share-groups.md, one in each language: a member that settles what is delivered to it.

The program in Python is the one of README.md (tests/stock/test_documents.py).
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import confluent_kafka
import pytest
from kafka_share_proxy.localkafka.children import Child
from kafka_share_proxy.localkafka.front import Front
from kafka_share_proxy.localkafka.jars import class_path
from kafka_share_proxy.localkafka.java import QUICK_START, find_java

from tests.support import documents, shell_examples
from tests.support.java_programs import COMPILER, QUIET
from tests.support.java_tools import tool
from tests.support.programs import CLIENTS, QUICK_BUILD, built, need
from tests.support.raw import Raw, until

pytestmark = [pytest.mark.broker, pytest.mark.timeout(480)]

Fresh = Callable[[str], str]
RELEASE = "4.3.0"
COMPILE_S = 240
VALUES = [b"one", b"two", b"three"]


def compile_in(folder: Path, *command: str) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=COMPILE_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def java(text: str, folder: Path) -> list[str]:
    (folder / "Worker.java").write_text(text)
    jars = class_path(RELEASE)
    options = ["-source", "17", "-target", "17", "-proc:none", "-cp", jars]
    compile_in(folder, find_java(), *QUICK_START, "-jar", class_path(COMPILER), *options, "Worker.java")
    return [find_java(), *QUICK_START, QUIET, "-cp", f"{folder}:{jars}", "Worker"]


def go(text: str, folder: Path) -> list[str]:
    compiler = need("go")
    (folder / "main.go").write_text(text)
    for name in ("go.mod", "go.sum"):
        (folder / name).write_bytes((CLIENTS / "franzgo" / name).read_bytes())
    compile_in(folder, compiler, "build", *QUICK_BUILD, "-o", "worker", ".")
    return [str(folder / "worker")]


def c(text: str, folder: Path) -> list[str]:
    """The library is the one inside the wheel of confluent-kafka, which has no header: a package for Node has it."""
    compiler, npm = need("gcc"), need("npm")
    install = [npm, "install", "--ignore-scripts", "--no-package-lock", "--no-audit", "--no-fund", "--silent"]
    package = built("librdkafka", install, "node_modules") / "node_modules" / "@confluentinc" / "kafka-javascript"
    (folder / "librdkafka").symlink_to(package / "deps" / "librdkafka" / "src")
    (folder / "worker.c").write_text(text)
    libraries = Path(confluent_kafka.__file__).parents[1] / "confluent_kafka.libs"
    (library,) = libraries.glob("librdkafka*.so*")
    linking = [str(library), f"-Wl,-rpath,{libraries}", f"-Wl,-rpath-link,{libraries}"]
    compile_in(folder, compiler, "-Wall", "-Werror", "-I.", "-o", "worker", "worker.c", *linking)
    return [str(folder / "worker")]


def sh(text: str, _folder: Path) -> list[str]:
    (words,) = shell_examples.commands(text, {})
    return shell_examples.runnable(words)


LANGUAGES: dict[str, Callable[[str, Path], list[str]]] = {"java": java, "go": go, "c": c, "sh": sh}


def example(language: str) -> str:
    return documents.block(documents.SHARE_GROUPS, language, "--topic orders" if language == "sh" else "orders")


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_member_prints_and_settles_all_records(
    proxy_39: Front, fresh: Fresh, tmp_path: Path, language: str
) -> None:
    topic, group = fresh("topic"), fresh("group")
    text = example(language)
    for name, own in {"proxy.example:19092": proxy_39.bootstrap, "orders": topic, "workers": group}.items():
        assert name in text
        text = text.replace(name, own)
    command = LANGUAGES[language](text, tmp_path)
    with Raw(proxy_39.bootstrap) as raw:
        created_topic = raw.create_topic(topic, 1)
        raw.configure_group(group, {"share.auto.offset.reset": "earliest"})
        raw.produce(created_topic, VALUES)
        worker = Child(command, tmp_path / "worker.log")
        try:
            until(lambda: raw.share_start_offset(group, topic) == len(VALUES), f"all are settled: {worker.log}")
            until(lambda: all(value in worker.log.read_bytes() for value in VALUES), "all are printed")
        finally:
            worker.kill()


def test_the_settings_are_set_and_the_tools_show_and_delete_the_group(
    proxy_39: Front, fresh: Fresh, tmp_path: Path
) -> None:
    topic, group = fresh("topic"), fresh("group")
    own = {"proxy.example:19092": proxy_39.bootstrap, "workers": group}
    (setting,) = shell_examples.commands(documents.block(documents.SHARE_GROUPS, "sh", "kafka-configs.sh"), own)
    listing, describing, deleting = shell_examples.commands(
        documents.block(documents.SHARE_GROUPS, "sh", "--delete"), own
    )
    assert "Completed updating config" in printed(setting)
    with Raw(proxy_39.bootstrap) as raw:
        raw.produce(raw.create_topic(topic, 1), VALUES)
        worker = Child(sh(example("sh").replace("proxy.example:19092", proxy_39.bootstrap).replace("orders", topic)
                          .replace("workers", group), tmp_path), tmp_path / "worker.log")  # fmt: skip
        try:
            until(lambda: raw.share_start_offset(group, topic) == len(VALUES), f"from the start: {worker.log}")
        finally:
            worker.stop()
    assert group in printed(listing)
    assert topic in printed(describing)
    printed(deleting)
    assert group not in printed(listing)


def printed(words: list[str]) -> str:
    return tool(shell_examples.TOOLS[words[0]], *words[1:])
