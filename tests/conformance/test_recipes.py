"""The recipes do what they say, taken out of the page that people read."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import yaml
from kafka_share_proxy.conformance.target import scenario
from kafka_share_proxy.conformance.target.actions import ACTIONS, NewFault
from kafka_share_proxy.localkafka.jars import class_path
from kafka_share_proxy.localkafka.java import QUICK_START, find_java

from tests.support import documents
from tests.support.java_programs import COMPILER
from tests.support.programs import CLIENTS, QUICK_BUILD, built, need
from tests.support.target_process import target_process

LIMIT_S = 240
JAVA_CLIENT, JUNIT, CONSOLE = "clients-4.4.0", "junit-1.13.4", "org.junit.platform.console.ConsoleLauncher"


def block(language: str) -> str:
    (code,) = documents.blocks(documents.TESTING, language)
    return code


def test_the_python_recipes_pass(tmp_path: Path) -> None:
    for number, code in enumerate(documents.blocks(documents.TESTING, "python")):
        (tmp_path / f"test_worker_{number}.py").write_text(code)
    plugins = ["-p", "kafka_share_proxy.conformance.pytest_plugin", "-p", "pytest_trio.plugin", "-o", "trio_mode=true"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *plugins],
        cwd=tmp_path,
        env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert "4 passed" in done.stdout, done.stdout + done.stderr


def shell(containing: str) -> str:
    return documents.block(documents.TESTING, "sh", containing)


def test_the_command_prints_what_the_page_shows_and_accepts_its_requests() -> None:
    need("curl")
    started, shown = shell("--until-stdin-closes").splitlines()
    requests = shell("$CONTROL/report")
    with target_process(*started.split()[3:]) as target:
        assert target.ready.keys() == json.loads(shown.replace(", ...", "")).keys()
        script = f"set -e\nCONTROL={target.control}\n{requests.replace('curl', 'curl --silent --fail')}"
        done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr
    assert '"findings"' in done.stdout


def test_the_scenario_of_the_page_is_valid() -> None:
    loaded = scenario.parse(yaml.safe_load(block("yaml")))
    assert [step.do for step in loaded.steps] == ["groups/configs", "coordinators/move", "nodes/3/down"]


def test_every_action_and_every_part_of_a_fault_is_on_the_page() -> None:
    text = documents.TESTING.read_text(encoding="utf-8")
    for path, (model, _) in ACTIONS.items():
        last = path.rpartition("/")[2]
        assert last in text, path
        assert all(name in text for name in model.model_fields if f"{{{name}}}" not in path), path
    assert all(name in text for name in NewFault.model_fields)


def run(command: list[str], folder: Path) -> str:
    """Run a recipe with the command `kafka-share-proxy` of this environment, and return what it prints."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        command,
        cwd=folder,
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_java_recipe_passes(tmp_path: Path) -> None:
    source, jars = tmp_path / "WorkerTest.java", class_path(JAVA_CLIENT, JUNIT)
    source.write_text(block("java"))
    options = ["-source", "17", "-target", "17", "-proc:none", "-cp", jars]
    ecj = [find_java(), *QUICK_START, "-jar", class_path(COMPILER), *options]
    run([*ecj, source.name], tmp_path)
    console = [find_java(), *QUICK_START, "-cp", os.pathsep.join([str(tmp_path), jars]), CONSOLE]
    assert "[         1 tests successful      ]" in run([*console, "execute", "--select-class", "WorkerTest"], tmp_path)


def test_the_go_recipe_passes(tmp_path: Path) -> None:
    go = need("go")
    for name in ("go.mod", "go.sum"):
        shutil.copy(CLIENTS / "franzgo" / name, tmp_path)
    (tmp_path / "worker_test.go").write_text(block("go"))
    assert "--- PASS: TestALockExpiresAndTheCoordinatorMoves" in run(
        [go, "test", *QUICK_BUILD, "-vet=off", "-v", "."], tmp_path
    )


def test_the_node_recipe_passes(tmp_path: Path) -> None:
    node, npm = need("node"), need("npm")
    install = [npm, "install", "--no-package-lock", "--no-audit", "--no-fund", "--silent"]
    (tmp_path / "node_modules").symlink_to(built("kafkajs", install, "node_modules") / "node_modules")
    (tmp_path / "worker.test.js").write_text(block("js"))
    assert "# pass 1" in run([node, "--test", "--test-reporter=tap", "worker.test.js"], tmp_path)
