"""`decode`: print captured frames as trees (built by `wire.codec.tree`)."""

from __future__ import annotations

from rich.console import Console

from kafka_share_proxy.feature.errors import ConfigError
from kafka_share_proxy.wire.codec import tree
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.errors import RemoteProtocolError

_RESPONSES = (
    "; if they are responses, name the request: --response-to API:VERSION, or --requests FILE with the requests of "
    "the same connection"
)


def show(captured: bytes, response_to: tuple[int, int] | None, requests: bytes) -> None:
    """Print every frame, and mark bytes that are not a frame.

    Raises:
        ConfigError: there is nothing to print. RemoteProtocolError: hex with an odd number of digits, or, after all is
        printed, some bytes could not be decoded as a frame. UnknownVersion: `response_to` is not known.
    """
    data = tree.raw_bytes(captured)
    if not data:
        raise ConfigError("nothing was captured: the input is empty")
    console = Console()
    shown, unread = 0, 0
    for node in tree.capture(data, response_to, tree.raw_bytes(requests)):
        shown, unread = shown + 1, unread + bool(node.unread)
        if console.is_terminal:
            console.print(node.rich())
        else:
            print(*node.lines(), sep="\n")  # noqa: T201  # a pipe needs whole lines
    if unread:
        advice = "" if response_to or requests else _RESPONSES
        raise RemoteProtocolError(f"{unread} of {shown} frames could not be read{advice}")


def api_version(text: str | None) -> tuple[int, int] | None:
    """Parse `Metadata:12` or `3:12` into (key, version). Raises ConfigError for other text."""
    if text is None:
        return None
    name, _, version = text.rpartition(":")
    keys = {api_name.lower(): key for key, api_name in registry.API_KEYS.items()}
    key = int(name) if name.isdecimal() else keys.get(name.lower())
    if key is None or not version.isdecimal():
        raise ConfigError(f"--response-to {text}: write API:VERSION, for example Metadata:12 or 3:12")
    return key, int(version)
