"""How two proxies of a fleet speak: messages, and how each side knows that the other one belongs to the fleet.

Theory of operation. A message is a size (int32), a kind (int8), a body as schemas/internal has it, and where there is
a secret a signature. The side that was dialled speaks first:

    dialled ─ PeerChallenge: its nonce ─▶            ◀─ PeerHello: nonce, proof ─ dialler
    dialled ─ PeerWelcome: proof ─▶                  from here on messages of both sides, each signed

A proof is an HMAC-SHA256 under the shared secret over the side's role, both nonces and both addresses: nobody can
answer with what the other side sent, now or earlier. Keys of the two directions come from the secret and both nonces;
a signature covers the number of the message in its direction, so that none can be left out, repeated or moved to
another link. What is said is not secret by this: where the network between proxies can be listened to, links are to be
encrypted as well (`fleet.LinkTls`).
Without a secret (which must be allowed by name) both sides say so, and nothing is proven. Pure; nonces come from above.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterator
from functools import lru_cache
from struct import Struct

from proxy.wire import messages, registry
from proxy.wire.errors import LocalProtocolError, RemoteProtocolError
from proxy.wire.frames import FrameReader
from proxy.wire.messages import Message
from proxy.wire.primitives import Buffer
from proxy.wire.values import MIB

MESSAGES = (
    "PeerChallenge",
    "PeerHello",
    "PeerWelcome",
    "PeerRequest",
    "PeerResponse",
    "PeerQuestion",
    "PeerAnswer",
    "PeerClosed",
    "PeerForget",
    "PeerPing",
    "PeerHoldingsRequest",
    "PeerHoldings",
    "PeerGroups",
    "PeerCancel",
    "PeerGroupKnownRequest",
    "PeerGroupKnown",
)
"""By kind. New ones are added at the end."""
VERSION = 0
FRAME_BYTES_MAX = 64 * MIB
"""Largest message. What a proxy asks a client's broker for is smaller."""
HANDSHAKE_BYTES_MAX = 4096
"""Largest message of somebody who has proven nothing."""
NONCE_BYTES = 32
SIGNATURE_BYTES = 16

_SIZE_AND_KIND = Struct(">ib")
_NUMBER = Struct(">q")
_DIALLER, _DIALLED, _KEYS = b"dialler", b"dialled", b"keys"


class NotOfTheFleet(RemoteProtocolError):
    """The other side does not know the secret, or does not speak as a proxy of the fleet."""


class PeerProtocol:
    """One end of one link. `outgoing` collects what the handshake says by itself."""

    def __init__(self, address: str, secret: bytes | None, nonce: bytes, *, dials: bool) -> None:
        """`address` is told to the other side; `nonce`: NONCE_BYTES random bytes."""
        self.is_established = False
        self.peer = ""
        """What the other side calls itself; proven once established."""
        self._address = address
        self._secret = secret
        self._nonce = nonce
        self._dials = dials
        self._peer_nonce = b""
        self._reader = FrameReader(HANDSHAKE_BYTES_MAX)
        self._send_key = self._receive_key = b""
        self._sent = self._received = 0
        self._outgoing = [] if dials else [self._encode(messages.PeerChallenge(nonce=nonce, address=address))]

    def outgoing(self) -> bytes:
        """What the handshake has to say, once."""
        said, self._outgoing = self._outgoing, []
        return b"".join(said)

    def send(self, message: Message) -> bytes:
        """A message as bytes; only once established."""
        if not self.is_established:
            raise LocalProtocolError("a message before the handshake is over")
        return self._encode(message)

    def receive_data(self, data: bytes | memoryview) -> Iterator[Message]:
        """Messages that came; those of the handshake are dealt with here.

        Raises:
            NotOfTheFleet: the other side proves nothing. RemoteProtocolError: what came is no message.
        """
        for frame in self._reader.receive_data(data):
            message = self._decode(frame)
            if self.is_established:
                yield message
            else:
                self._shake(message)

    def _shake(self, message: Message) -> None:
        if self._dials and isinstance(message, messages.PeerChallenge) and not self._peer_nonce:
            self._meet(message)
            proof = self._proof(_DIALLER)
            hello = messages.PeerHello(nonce=self._nonce, address=self._address, proof=proof)
            self._outgoing.append(self._encode(hello))
        elif self._dials and isinstance(message, messages.PeerWelcome) and self._peer_nonce:
            self._check(message.proof, _DIALLED)
            self._establish()
        elif not self._dials and isinstance(message, messages.PeerHello):
            self._meet(message)
            self._check(message.proof, _DIALLER)
            self._outgoing.append(self._encode(messages.PeerWelcome(proof=self._proof(_DIALLED))))
            self._establish()
        else:
            raise NotOfTheFleet(f"{type(message).__name__} in the middle of the handshake")

    def _meet(self, message: messages.PeerChallenge | messages.PeerHello) -> None:
        self._peer_nonce, self.peer = bytes(message.nonce), message.address
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
            raise NotOfTheFleet(f"{self.peer or 'somebody'} does not have the secret of this fleet")

    def _proof(self, role: bytes) -> bytes:
        return b"" if self._secret is None else self._hmac(b"proof", role)

    def _hmac(self, *what: bytes) -> bytes:
        mine, theirs = (self._nonce, self._address.encode()), (self._peer_nonce, self.peer.encode())
        parts = (*what, *mine, *theirs) if self._dials else (*what, *theirs, *mine)
        text = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
        return hmac.digest(self._secret or b"", text, "sha256")

    # Messages and bytes

    def _encode(self, message: Message) -> bytes:
        kind = _kinds()[type(message)]
        body = registry.codec(MESSAGES[kind], VERSION).encode(message)
        size = 1 + len(body) + (SIGNATURE_BYTES if self._send_key else 0)
        if size > FRAME_BYTES_MAX:
            raise LocalProtocolError(f"a message of {size} bytes to another proxy")
        head = _SIZE_AND_KIND.pack(size, kind)
        if not self._send_key:
            return head + body
        signature = _sign(self._send_key, self._sent, head[4:] + body)
        self._sent += 1
        return b"".join((head, body, signature))

    def _decode(self, frame: bytes) -> Message:
        end = len(frame)
        if self._receive_key:
            end -= SIGNATURE_BYTES
            signature = _sign(self._receive_key, self._received, frame[: max(end, 0)])
            self._received += 1
            if end < 1 or not hmac.compare_digest(signature, frame[end:]):
                raise NotOfTheFleet("a message that nobody of the fleet has signed")
        if end < 1 or frame[0] >= len(MESSAGES):
            raise RemoteProtocolError("a message of a kind that is not known here")
        message: Message = registry.codec(MESSAGES[frame[0]], VERSION).decode(memoryview(frame)[1:end])
        return message


def _sign(key: bytes, number: int, message: bytes) -> bytes:
    return hmac.digest(key, _NUMBER.pack(number) + message, "sha256")[:SIGNATURE_BYTES]


@lru_cache(maxsize=1)
def _kinds() -> dict[type[Message], int]:
    return {registry.message(name): kind for kind, name in enumerate(MESSAGES)}
