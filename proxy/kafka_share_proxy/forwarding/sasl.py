"""The SASL state of a connection, as far as it is visible from outside. The exchange itself is forwarded.

Rules: forwarding/README.md 27 to 30. The protocol does not signal success (an intermediate round looks the same), so an
exchange counts as over when the client itself sends an ordinary request after a response without error.

    NONE ─ handshake v1 ─▶ EXCHANGING ─ no error, then an ordinary request ─▶ DONE ─ handshake ─▶ EXCHANGING
      └─── handshake v0 ─▶ TOKENS ─ a frame that is a Kafka request ─▶ DONE
    an error in a response ─▶ FAILED
"""

from __future__ import annotations

from enum import Enum, auto
from math import inf

from kafka_share_proxy.forwarding.sasl_user import SaslUser

NOT_AUTHENTICATED = "a request after the lifetime of the client's SASL session, or before the end of its authentication"
"""Reason to close. A broker closes too, at any request but SaslHandshake (SocketServer.processCompletedReceives)."""


class SaslStage(Enum):
    """Stage of the authentication exchange."""

    NONE = auto()
    """The listener has no SASL, or the client has not begun it."""
    EXCHANGING = auto()
    TOKENS = auto()
    DONE = auto()
    FAILED = auto()


JUDGED = (SaslStage.NONE, SaslStage.DONE)
"""Stages in which the broker processes requests. A tuple: enum look-ups are slow (CPython 3.11)."""


class Sasl:
    """Authentication state of one connection."""

    __slots__ = ("_agreed", "_claimed", "_unproven", "expires", "stage")

    def __init__(self) -> None:
        self.stage = SaslStage.NONE
        self._agreed = False
        self._claimed: SaslUser | None = None
        self._unproven = 0
        """Rounds that the claimed name still has to pass."""
        self.expires = inf
        """End of the session by the loop's clock. Infinite without a lifetime."""

    @property
    def user(self) -> str | None:
        """Name that the client authenticated with. None before that, and if the mechanism does not show it."""
        if self._claimed is None or self._unproven > 0 or self.stage is SaslStage.FAILED:
            return None
        return self._claimed.name

    @property
    def is_between_exchanges(self) -> bool:
        """True unless an exchange has begun, or has failed."""
        return self.stage in JUDGED

    @property
    def is_done(self) -> bool:
        return self.stage is SaslStage.DONE

    def resume(self, user: str | None, expires: float) -> None:
        """Continue after an exchange that another process has observed."""
        self.stage, self.expires = SaslStage.DONE, expires
        self._claimed = None if user is None else SaslUser(user, 0)

    def claims(self, user: SaslUser | None) -> None:
        """Note the name in a round of the exchange. Later rounds have none."""
        if user is not None:
            self._claimed, self._unproven = user, user.rounds

    def handshake_sent(self, version: int) -> None:
        self.stage = SaslStage.EXCHANGING if version else SaslStage.TOKENS
        self._claimed = None
        self._agreed = False

    def handshake_responded(self, error_code: int) -> None:
        if error_code:
            self.stage = SaslStage.FAILED

    def authenticate_responded(self, error_code: int, session_lifetime_ms: int, sent_at: float) -> None:
        """Note the outcome of one round.

        A broker with session lifetimes returns one with every success, and 0 in intermediate rounds, which is ignored.
        """
        if error_code:
            self.stage = SaslStage.FAILED
            return
        self._agreed = True
        self._unproven -= 1
        if session_lifetime_ms > 0:
            self.expires = sent_at + session_lifetime_ms / 1000

    def ordinary_request(self) -> None:
        if self.stage in JUDGED:
            return
        if self.stage is SaslStage.TOKENS or (self.stage is SaslStage.EXCHANGING and self._agreed):
            self.stage = SaslStage.DONE

    def may_send_request(self, now: float) -> bool:
        return self.stage in JUDGED and now < self.expires
