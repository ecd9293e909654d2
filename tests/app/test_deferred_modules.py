"""Modules that are loaded at their first use."""

from __future__ import annotations

import subprocess
import sys

from kafka_share_proxy.app.deferred_modules import deferred

LOADED = "import sys; from kafka_share_proxy.app.deferred_modules import *; "


def run(program: str) -> list[str]:
    """Return the words that a new process prints."""
    command = [sys.executable, "-c", LOADED + program]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout.split()


def test_a_module_is_loaded_when_something_of_it_is_used() -> None:
    program = """
with deferred({"colorsys": ()}):
    import colorsys
print("colorsys" in sys.modules, colorsys.rgb_to_hsv(0, 0, 0), "colorsys" in sys.modules)
"""
    assert run(program) == ["False", "(0.0,", "0.0,", "0)", "True"]


def test_a_function_that_is_imported_by_name_loads_its_module_when_it_is_called() -> None:
    program = """
with deferred({"colorsys": ("rgb_to_hsv",)}):
    from colorsys import rgb_to_hsv
print("colorsys" in sys.modules, rgb_to_hsv(0, 0, b=0)[2], "colorsys" in sys.modules)
"""
    assert run(program) == ["False", "0", "True"]


def test_what_an_import_uses_immediately_is_the_real_module() -> None:
    """Also in the time in which the stand-in takes its place, and for all later imports."""
    program = """
with deferred({"colorsys": ()}):
    from colorsys import rgb_to_hsv
    import colorsys
print(colorsys.__spec__.name, sys.modules["colorsys"] is colorsys, rgb_to_hsv is colorsys.rgb_to_hsv)
"""
    assert run(program) == ["colorsys", "True", "True"]


def test_a_loaded_module_stays_itself() -> None:
    with deferred({"subprocess": ("run",)}):
        assert sys.modules["subprocess"] is subprocess
    assert sys.modules["subprocess"] is subprocess


def test_the_libraries_of_a_proxy_do_not_load_what_it_never_uses() -> None:
    program = """
from kafka_share_proxy.app.observing import observe
from kafka_share_proxy.app.serving import server
server.load_libraries(server.LIBRARIES)
observe.log_lines("json")
print([name for name in ("asyncio", "argparse", "rich") if name in sys.modules])
import structlog
print(structlog.stdlib.asyncio.Event.__name__, structlog.get_logger().bind(a=1) is not None)
"""
    assert run(program) == ["[]", "Event", "True"]
