"""Error messages of one line for failed jobs: Spark's errors contain Java frames and tracebacks of Python workers."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kafka_share_proxy.wire.errors import ProxyError

OURS = re.compile(r"^(?:\S* )?(?:proxy|kafka_share_proxy)(?:\.\w+)+: (?P<text>.+)$", re.MULTILINE)
"""Pattern of the last line of a traceback that ends in an error of this package, as Spark quotes it."""
PYTHON = re.compile(r"^(?P<kind>[A-Za-z_][\w.]*(?:Error|Exception|Interrupt)): (?P<text>.+)$", re.MULTILINE)
CAUSES_MAX = 20
"""Maximum number of causes of a Java exception that are followed."""
CHARACTERS_MAX = 500
"""Maximum length of the line."""


def one_line(error: BaseException) -> str:
    """Return an error as one line, without the names of Java packages and without frames."""
    text = " ".join(_text(error).split())
    return text if len(text) <= CHARACTERS_MAX else f"{text[:CHARACTERS_MAX]} ..."


def _text(error: BaseException) -> str:
    if isinstance(error, ProxyError):
        return str(error)
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    text_of_error = str(error)
    ours = OURS.findall(text_of_error)
    if ours:
        return str(ours[-1])
    causes = list(_java_causes(error))
    if causes:
        return causes[-1]
    python = PYTHON.findall(text_of_error)
    if python:
        return ": ".join(python[-1])
    first = text_of_error.strip().splitlines()[:1]
    return f"{type(error).__name__}: {first[0]}" if first else type(error).__name__


def _java_causes(error: BaseException) -> Iterator[str]:
    thrown = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    for _ in range(CAUSES_MAX):
        if thrown is None:
            return
        kind = thrown.getClass().getSimpleName()
        message = (thrown.getMessage() or "").strip()
        mine = OURS.findall(message)
        if mine:
            yield str(mine[-1])
            return
        python = PYTHON.findall(message)
        if python:
            yield ": ".join(python[-1])
        else:
            yield f"{kind}: {message.splitlines()[0]}" if message else str(kind)
        thrown = thrown.getCause()
