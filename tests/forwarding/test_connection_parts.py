"""The parts of a connection know interfaces, not each other's whole: held by what they import."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

FORWARDING = Path(__file__).resolve().parents[2] / "proxy" / "kafka_share_proxy" / "forwarding"
PARTS = (
    "response_dispatch",
    "broker_to_client",
    "client_to_broker",
    "connection_parts",
    "connection_state",
    "connection_timeouts",
    "held_bytes",
    "injected_requests",
    "local_requests",
    "peer_socket",
    "request_dispatch",
)
WHOLES = {"kafka_share_proxy.forwarding.connection", "kafka_share_proxy.forwarding.data_plane"}


def imported(path: Path) -> set[str]:
    """Modules that a file imports, for types only as well."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            found |= {str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found


@pytest.mark.parametrize("part", PARTS)
def test_no_part_knows_the_whole(part: str) -> None:
    """Neither the connection nor the data plane, not even under TYPE_CHECKING."""
    (source,) = FORWARDING.rglob(f"{part}.py")
    assert not WHOLES & imported(source)


def test_the_connection_is_made_of_these_parts() -> None:
    """A part that is added to the connection is listed here; and the data plane knows the connection."""
    prefix = "kafka_share_proxy.forwarding."
    used = {name.removeprefix(prefix) for name in imported(FORWARDING / "connection.py") if name.startswith(prefix)}
    modules = {
        name.split(".")[-1] for name in used if FORWARDING.joinpath(*name.split(".")).with_suffix(".py").is_file()
    }
    assert modules <= {*PARTS, "client_requests", "interfaces", "sasl", "walking"}
    assert "kafka_share_proxy.forwarding.connection" in imported(FORWARDING / "data_plane.py")
