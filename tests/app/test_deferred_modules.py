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
with deferred({"colorsys": {}}):
    import colorsys
print("colorsys" in sys.modules, colorsys.rgb_to_hsv(0, 0, 0), "colorsys" in sys.modules)
"""
    assert run(program) == ["False", "(0.0,", "0.0,", "0)", "True"]


def test_a_function_that_is_imported_by_name_loads_its_module_when_it_is_called() -> None:
    program = """
with deferred({"colorsys": {"rgb_to_hsv": None}}):
    from colorsys import rgb_to_hsv
print("colorsys" in sys.modules, rgb_to_hsv(0, 0, b=0)[2], "colorsys" in sys.modules)
"""
    assert run(program) == ["False", "0", "True"]


def test_what_an_import_uses_immediately_is_the_real_module() -> None:
    """Also in the time in which the stand-in takes its place, and for all later imports."""
    program = """
with deferred({"colorsys": {}}):
    from colorsys import rgb_to_hsv
    import colorsys
print(colorsys.__spec__.name, sys.modules["colorsys"] is colorsys, rgb_to_hsv is colorsys.rgb_to_hsv)
"""
    assert run(program) == ["colorsys", "True", "True"]


def test_a_loaded_module_stays_itself() -> None:
    with deferred({"subprocess": {"run": None}}):
        assert sys.modules["subprocess"] is subprocess
    assert sys.modules["subprocess"] is subprocess


def test_a_function_may_be_replaced() -> None:
    program = """
with deferred({"colorsys": {"rgb_to_hsv": lambda *_: "none"}}):
    from colorsys import rgb_to_hsv
print(rgb_to_hsv(0, 0, 0), "colorsys" in sys.modules)
"""
    assert run(program) == ["none", "False"]


def test_the_libraries_of_a_proxy_do_not_load_what_it_never_uses() -> None:
    """A taken port ends it after its first lines."""
    program = """
import socket
from kafka_share_proxy.app import command_line
taken = socket.create_server(("127.0.0.1", 0))
address = f"127.0.0.1:{taken.getsockname()[1]}"
sys.argv = ["kafka-share-proxy", "serve", "--bootstrap", "127.0.0.1:1", "--listen", address]
try:
    command_line.main()
except SystemExit as error:
    print(error.code)
server = sys.modules["kafka_share_proxy.app.serving.server"]
server.load_libraries(server.LIBRARIES)
names = ("asyncio", "argparse", "rich", "importlib.metadata", "email.message")
print([name for name in names if name in sys.modules])
import crc32c, structlog
print(crc32c.__version__[:1].isdigit(), structlog.stdlib.asyncio.Event.__name__)
"""
    assert run(program) == ["1", "[]", "True", "Event"]
