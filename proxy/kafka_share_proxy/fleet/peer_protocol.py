"""Protocol between two proxies of a fleet: messages, and the proof that each side belongs to the fleet. No I/O.

A message is a size (int32), a kind (int8), a body as in schemas/internal, and a signature if there is a secret. The
side that was dialled sends first:

    dialled ─ PeerChallenge: its nonce ─▶            ◀─ PeerHello: nonce, proof ─ dialler
    dialled ─ PeerWelcome: proof ─▶                  from here on messages of both sides, each signed

Rules: fleet/README.md 3, 4 and 18. The keys of the two directions are derived from the secret and both nonces. Without
a secret (which must be allowed by name) nothing is proven.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterator
from functools import lru_cache
from struct import Struct

from kafka_share_proxy.wire.codec.frames import FrameReader
from kafka_share_proxy.wire.codec.primitives import Buffer
from kafka_share_proxy.wire.definitions import messages, registry
from kafka_share_proxy.wire.definitions.messages import Message
from kafka_share_proxy.wire.errors import LocalProtocolError, RemoteProtocolError
from kafka_share_proxy.wire.values import MIB

MESSAGES = (
    "PeerChallenge",
    "PeerHello",
    "PeerWelcome",
    "PeerRequest",
    "PeerResponse",
    "PeerQuery",
    "PeerQueryResponse",
    "PeerClosed",
    "PeerForget",
    "PeerPing",
    "PeerHoldingsRequest",
    "PeerHoldings",
    "PeerGroups",
    "PeerCancel",
    "PeerGroupKnownRequest",
    "PeerGroupKnown",
    "PeerUnknown",
    "PeerCommand",
    "PeerCommandResult",
)
"""Messages by kind. Only appended to (fleet/README.md rule 18)."""
HANDSHAKE_KINDS = 3
"""Number of kinds that are exchanged only before a link is established."""
VERSION = 0
FRAME_BYTES_MAX = 64 * MIB
"""Maximum size of a message in bytes."""
HANDSHAKE_BYTES_MAX = 4096
"""Maximum bytes of a message from a side that has proven nothing."""
NONCE_BYTES = 32
SIGNATURE_BYTES = 16

_SIZE_AND_KIND = Struct(">ib")
_NUMBER = Struct(">q")
_DIALLER, _DIALLED, _KEYS = b"dialler", b"dialled", b"keys"


class NotOfTheFleet(RemoteProtocolError):
    """The other side does not know the secret, or not follow the protocol."""


class PeerProtocol:
    """One end of one link. `outgoing` collects the messages of the handshake."""

    def __init__(self, address: str, secret: bytes | None, nonce: bytes, *, dials: bool) -> None:
        self.is_established = False
        self.peer = ""
        """Address that the other side claims. Proven once the link is established."""
        self.peer_kinds = len(MESSAGES)
        """Number of kinds that the other side knows."""
        self.unknown_kinds: set[int] = set()
        """Kinds of messages that were skipped."""
        self._address = address
        self._secret = secret
        self._nonce = nonce
        self._dials = dials
        self._peer_nonce = b""
        self._reader = FrameReader(HANDSHAKE_BYTES_MAX)
        self._send_key = self._receive_key = b""
        self._sent = self._received = 0
        self._outgoing: list[bytes] = []
        if not dials:
            challenge = messages.PeerChallenge(nonce=nonce, address=address, kinds=len(MESSAGES))
            self._outgoing.append(self._encode(challenge))

    def outgoing(self) -> bytes:
        """Return the bytes to send now, and forget them."""
        outgoing, self._outgoing = self._outgoing, []
        return b"".join(outgoing)

    def kind_of(self, message: Message) -> int:
        return _kinds()[type(message)]

    def send(self, message: Message) -> bytes:
        """Return the bytes of a message. The link must be established, and the other side must know the kind."""
        if not self.is_established:
            raise LocalProtocolError("a message before the handshake is over")
        return self.outgoing() + self._encode(message)  # signatures are numbered in the order of sending

    def receive_data(self, data: bytes | memoryview) -> Iterator[Message]:
        """Yield the messages after the handshake.

        Raises:
            NotOfTheFleet: the other side proves nothing. RemoteProtocolError: the data is no message.
        """
        for frame in self._reader.receive_data(data):
            message = self._decode(frame)
            if message is None:
                continue
            if self.is_established:
                yield message
            else:
                self._on_handshake(message)

    def _on_handshake(self, message: Message) -> None:
        if self._dials and isinstance(message, messages.PeerChallenge) and not self._peer_nonce:
            self._learn_peer(message)
            proof = self._proof(_DIALLER)
            hello = messages.PeerHello(nonce=self._nonce, address=self._address, proof=proof, kinds=len(MESSAGES))
            self._outgoing.append(self._encode(hello))
        elif self._dials and isinstance(message, messages.PeerWelcome) and self._peer_nonce:
            self._check(message.proof, _DIALLED)
            self._establish()
        elif not self._dials and isinstance(message, messages.PeerHello):
            self._learn_peer(message)
            self._check(message.proof, _DIALLER)
            self._outgoing.append(self._encode(messages.PeerWelcome(proof=self._proof(_DIALLED))))
            self._establish()
        else:
            raise NotOfTheFleet(f"{type(message).__name__} in the middle of the handshake")

    def _learn_peer(self, message: messages.PeerChallenge | messages.PeerHello) -> None:
        self._peer_nonce, self.peer = bytes(message.nonce), message.address
        self.peer_kinds = message.kinds
        if len(self._peer_nonce) != NONCE_BYTES or self._peer_nonce == self._nonce:
            raise NotOfTheFleet("no nonce")

    def _establish(self) -> None:
        self.is_established = True
        self._reader.accept(FRAME_BYTES_MAX)
        if self._secret is not None:
            keys = {role: self._hmac(_KEYS, role) for role in (_DIALLER, _DIALLED)}
            mine, theirs = (_DIALLER, _DIALLED) if self._dials else (_DIALLED, _DIALLER)
            self._send_key, self._receive_key = keys[mine], keys[theirs]

    def _check(self, proof: Buffer, role: bytes) -> None:
        if not hmac.compare_digest(bytes(proof), self._proof(role)):
            raise NotOfTheFleet(f"{self.peer or 'the other side'} does not have the secret of this fleet")

    def _proof(self, role: bytes) -> bytes:
        return b"" if self._secret is None else self._hmac(b"proof", role)

    def _hmac(self, *values: bytes) -> bytes:
        mine, theirs = (self._nonce, self._address.encode()), (self._peer_nonce, self.peer.encode())
        parts = (*values, *mine, *theirs) if self._dials else (*values, *theirs, *mine)
        text = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
        return hmac.digest(self._secret or b"", text, "sha256")

    # Messages and bytes

    def _encode(self, message: Message) -> bytes:
        kind = self.kind_of(message)
        return self._framed(kind, registry.codec(MESSAGES[kind], VERSION).encode(message))

    def _framed(self, kind: int, body: bytes) -> bytes:
        size = 1 + len(body) + (SIGNATURE_BYTES if self._send_key else 0)
        if size > FRAME_BYTES_MAX:
            raise LocalProtocolError(f"a message of {size} bytes to another proxy")
        head = _SIZE_AND_KIND.pack(size, kind)
        if not self._send_key:
            return head + body
        signature = _sign(self._send_key, self._sent, head[4:] + body)
        self._sent += 1
        return b"".join((head, body, signature))

    def _decode(self, frame: bytes) -> Message | None:
        """Return the message, or None if its kind is unknown here."""
        end = len(frame)
        if self._receive_key:
            end -= SIGNATURE_BYTES
            signature = _sign(self._receive_key, self._received, frame[: max(end, 0)])
            self._received += 1
            if end < 1 or not hmac.compare_digest(signature, frame[end:]):
                raise NotOfTheFleet("a message without a valid signature of the fleet")
        if end < 1:
            raise RemoteProtocolError("a message without a kind")
        if frame[0] >= len(MESSAGES):
            self._skip(frame[0], frame[1:end])
            return None
        message: Message = registry.codec(MESSAGES[frame[0]], VERSION).decode(memoryview(frame)[1:end])
        return message

    def _skip(self, kind: int, body: bytes) -> None:
        """Raises RemoteProtocolError in the middle of the handshake."""
        if not self.is_established:
            raise RemoteProtocolError("a message of a kind that is not known here")
        number = int.from_bytes(body[: _NUMBER.size], "big", signed=True) if len(body) >= _NUMBER.size else 0
        self._outgoing.append(self._encode(messages.PeerUnknown(kind=kind, id=number)))
        self.unknown_kinds.add(kind)


def _sign(key: bytes, number: int, message: bytes) -> bytes:
    return hmac.digest(key, _NUMBER.pack(number) + message, "sha256")[:SIGNATURE_BYTES]


@lru_cache(maxsize=1)
def _kinds() -> dict[type[Message], int]:
    return {registry.message(name): kind for kind, name in enumerate(MESSAGES)}
