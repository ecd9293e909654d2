"""How far a client has come with SASL, as far as one can see from outside: the exchange itself passes through.

Theory of operation. What matters here is when a request of the proxy's own may be sent on the client's upstream
connection: a broker ends the connection on anything else between SaslHandshake and the end of the authentication, and
after the session lifetime (KIP-368). A request of the client that would be served here ends it likewise. Success is not
written anywhere (an intermediate round looks the same), so an exchange counts as over when the client itself sends an
ordinary request after an answer without error.

    NONE ─ handshake v1 ─▶ EXCHANGING ─ answer without error, then an ordinary request ─▶ DONE ─ handshake ─▶ EXCHANGING
      └─── handshake v0 ─▶ TOKENS ─ a frame that is a Kafka request ─▶ DONE
    an error in an answer ─▶ FAILED
"""

from __future__ import annotations

from enum import Enum, auto
from math import inf


class SaslStage(Enum):
    """Where the exchange stands."""

    NONE = auto()
    """No handshake was seen: the listener has no SASL, or it is yet to come."""
    EXCHANGING = auto()
    TOKENS = auto()
    DONE = auto()
    FAILED = auto()


_JUDGED = (SaslStage.NONE, SaslStage.DONE)
"""Stages at which requests are judged. Looked up with every request, which is slow in an enum (CPython 3.11)."""


class Sasl:
    """The authentication state of one connection."""

    __slots__ = ("_agreed", "_expires", "stage")

    def __init__(self) -> None:
        self.stage = SaslStage.NONE
        self._agreed = False
        self._expires = inf

    def handshake_sent(self, version: int) -> None:
        """The client began an exchange; v0 is followed by raw tokens."""
        self.stage = SaslStage.EXCHANGING if version else SaslStage.TOKENS
        self._agreed = False

    def handshake_answered(self, error_code: int) -> None:
        """The broker took the mechanism, or not."""
        if error_code:
            self.stage = SaslStage.FAILED

    def authenticate_answered(self, error_code: int, session_lifetime_ms: int, sent_at: float) -> None:
        """The broker answered one round; its lifetime counts from when the request was sent, not to count too long.

        0 says nothing: a broker with lifetimes gives one with every success, and an intermediate round gives none, so
        the one that was given before stays.
        """
        if error_code:
            self.stage = SaslStage.FAILED
            return
        self._agreed = True
        if session_lifetime_ms > 0:
            self._expires = sent_at + session_lifetime_ms / 1000

    def ordinary_request(self) -> None:
        """The client sent a request that belongs to no exchange."""
        if self.stage in _JUDGED:
            return
        if self.stage is SaslStage.TOKENS or (self.stage is SaslStage.EXCHANGING and self._agreed):
            self.stage = SaslStage.DONE

    def may_ask(self, now: float) -> bool:
        """Whether a request would be judged, not end the connection: one of the proxy's own, or an ordinary one."""
        return self.stage in _JUDGED and now < self._expires
