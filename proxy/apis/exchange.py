"""Messages in, messages out: what handlers do around `Connection.ask` and for their own answer."""

from __future__ import annotations

from typing import Any

from proxy.apis.ports import Call, Connection
from proxy.apis.promise import Promise
from proxy.wire import frames, registry


def ask(connection: Connection, key: int, version: int, request: Any) -> Promise[memoryview]:
    """Send a request of the proxy's own on the client's upstream connection; `told` reads the answer."""
    return connection.ask(key, version, registry.request(key, version).encode(request))


def told(key: int, version: int, answer: memoryview) -> Any:
    """The decoded answer to `ask`. Raises RemoteProtocolError when it is none."""
    return registry.response(key, version).decode(answer)


async def ask_upstream(call: Call, request: Any) -> Any:
    """Ask the same API in the same version as the client did, and wait for the decoded answer."""
    return told(call.key, call.version, await ask(call.connection, call.key, call.version, request))


def reply(call: Call, message: Any) -> bytes:
    """The whole response frame for a call."""
    return frames.response(call.key, call.version, call.correlation_id, message)
