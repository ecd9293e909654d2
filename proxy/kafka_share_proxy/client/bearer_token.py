"""OAUTHBEARER: tokens that a callback of the program fetches (KIP-255)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from inspect import isawaitable, iscoroutinefunction
from typing import NamedTuple

import trio

from kafka_share_proxy.brokers.cluster_connection import Identity
from kafka_share_proxy.consumer.options import ConfigurationError
from kafka_share_proxy.wire.errors import UpstreamLost
from kafka_share_proxy.wire.sasl import SEPARATOR

MECHANISM = "OAUTHBEARER"
TOKEN_S = 20.0
"""Time limit of the callback in seconds."""

FetchToken = Callable[[], str | Awaitable[str]]


class OAuthBearer(NamedTuple):
    """Login with a bearer token: `sasl=OAuthBearer(fetch_token)`."""

    token: FetchToken
    """Returns a token that is valid now. Called for every connection, and again before its session ends (KIP-368). A
    plain function runs in a worker thread and may block; an async function runs in the Trio task of the connection.
    """
    extensions: Mapping[str, str] = {}
    """Sent with the token (KIP-342)."""


def bearer_identity(login: OAuthBearer) -> Identity:
    """Return the identity for SASL.

    Raises ConfigurationError if the token is no function, or an extension is malformed.
    """
    if not callable(login.token):
        raise ConfigurationError("sasl=OAuthBearer(...): the token is a function that returns it")
    for name, value in login.extensions.items():
        if not (name.isalpha() and name != "auth") or SEPARATOR in value:
            raise ConfigurationError(f"sasl=OAuthBearer(...): extension {name!r}: a name of letters other than auth")
    pairs = SEPARATOR.join(f"{name}={value}" for name, value in login.extensions.items())

    async def fetch() -> str:
        return await fetch_token(login.token)

    return Identity(mechanism=MECHANISM, username=pairs, password=str, fetch=fetch)


async def fetch_token(callback: FetchToken) -> str:
    """Call the callback. Raises UpstreamLost if it failed, took too long or returned no token."""
    try:
        with trio.fail_after(TOKEN_S):
            if iscoroutinefunction(callback):
                token = await callback()
            else:
                token = await trio.to_thread.run_sync(callback, abandon_on_cancel=True)
                token = await token if isawaitable(token) else token
    except trio.TooSlowError:
        raise UpstreamLost(f"the token callback of sasl= returned nothing within {TOKEN_S:g} s") from None
    except Exception as error:  # any exception of the program's own function
        raise UpstreamLost(f"the token callback of sasl= failed: {error!r}") from error
    if not isinstance(token, str) or not token or SEPARATOR in token:
        raise UpstreamLost(f"the token callback of sasl= returned no token but {type(token).__name__}")
    return token
