"""Text from outside in a printable form."""

from __future__ import annotations

SHOWN_BYTES = 64


def key_text(key: bytes, bytes_max: int = SHOWN_BYTES) -> str:
    """Return printable UTF-8 unchanged, other bytes as 0x and hexadecimals, with "..." after `bytes_max` bytes."""
    shown, rest = key[:bytes_max], "..." if len(key) > bytes_max else ""
    try:
        text = shown.decode()
    except UnicodeDecodeError as error:
        is_cut = rest and error.reason == "unexpected end of data"
        text = shown[: error.start].decode() if is_cut else ""
    return f"{text if text and text.isprintable() else '0x' + shown.hex()}{rest}"


def printable(text: str) -> str:
    """Replace control characters, line ends, and characters that reorder text."""
    return text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)
