"""The recipes do what they say, taken out of the page that people read."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from kafka_share_proxy.conformance.target import scenario
from kafka_share_proxy.conformance.target.actions import ACTIONS, NewFault

PAGE = Path(__file__).resolve().parents[2] / "proxy/kafka_share_proxy/conformance/RECIPES.md"
LIMIT_S = 120


def block(language: str) -> str:
    (code,) = re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return str(code)


def test_the_python_recipe_passes(tmp_path: Path) -> None:
    (tmp_path / "test_worker.py").write_text(block("python"))
    plugins = ["-p", "kafka_share_proxy.conformance.pytest_plugin", "-p", "pytest_trio.plugin"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *plugins],
        cwd=tmp_path,
        env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert "3 passed" in done.stdout, done.stdout + done.stderr


def test_the_scenario_of_the_page_is_valid() -> None:
    loaded = scenario.parse(yaml.safe_load(block("yaml")))
    assert [step.do for step in loaded.steps] == ["groups/configs", "coordinators/move", "nodes/3/down"]


def test_every_action_and_every_part_of_a_fault_is_on_the_page() -> None:
    text = PAGE.read_text()
    for path, (model, _) in ACTIONS.items():
        last = path.rpartition("/")[2]
        assert last in text, path
        assert all(name in text for name in model.model_fields if f"{{{name}}}" not in path), path
    assert all(name in text for name in NewFault.model_fields)


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_the_node_recipe_starts_a_target(tmp_path: Path) -> None:
    command = Path(sys.executable).with_name("kafka-share-proxy")
    program = block("js").replace("spawn('kafka-share-proxy'", f"spawn({str(command)!r}")
    program += "\nstartTarget().then(({ bootstrap, stop }) => { console.log(bootstrap); stop() })\n"
    file = tmp_path / "recipe.cjs"
    file.write_text(program)
    done = subprocess.run(["node", str(file)], capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert re.fullmatch(r"127\.0\.0\.1:\d+", done.stdout.strip()), done.stderr
