"""Lines of audit files as no proxy writes them, and some that look as if."""

from __future__ import annotations

from tests.support.audit_story import NOON

HEAD = f'{{"v": 2, "proxy_id": "p", "seq": 1, "ts_ms": {NOON}, '
SETTLE = HEAD + '"kind": "settle", "first": 5, "last": 6, "outcome": "accept"'
ACQUIRE = HEAD + '"kind": "acquire", "first": 5, "last": 6, "attempt": 1'


def with_(more: str) -> str:
    return f"{SETTLE}, {more}}}"


TAKEN = [
    with_('"unheard": "of"'), with_('"unheard": [1, [2.5, null], "x"]'), with_('"renews": null'), with_('"renews": -0'),
    with_('"member": ""'), with_('"member": "Infra NaN"'), with_(r'"member": "\u0000\ud83d\ude00\/\n"'),
    with_('"member": "a\u2028b\u0085c"'), with_('"renew_ms": 9223372036854775807'), with_('"slot": "of another kind"'),
    ACQUIRE + "}", HEAD + '"kind": "renew"}', SETTLE.replace("accept", "") + "}",
    SETTLE.replace("kind", r"\u006bind") + "}",
]  # fmt: skip
"""Lines that Arrow decides."""
ODD = [
    with_('"renews": 1.0'), with_('"renews": 1e2'), with_('"renews": "1"'), with_('"renews": true'),
    with_('"renew_ms": 9223372036854775808'), with_('"attempt": 2147483648'), with_('"attempt": 01'),
    with_('"member": 5'), with_('"member": 1.50'), with_('"member": {"a": [1]}'), with_('"member": [1, 2]'),
    with_('"member": true'), with_(r'"member": "\ud83d"'), with_(r'"member": "\x"'), with_('"member": "\t"'),
    with_('"member": "a\0b"'), with_('"member": "{"'), with_('"member": "}"'), with_('"seq": 2'), with_('"seq": null'),
    with_('"unheard": {"of": 1}'), with_('"unheard": NaN'), with_('"unheard": Infinity'), with_('"unheard": Inf'),
    with_('"unheard": -NaN'), with_('"unheard":-Inf'), with_('"unheard": 1e999'), with_('"unheard": .5'),
    with_('"unheard": ' + "1" * 1_500), with_('"member": "' + "m" * 100_000 + '"'), with_('"slot": {"of": "another"}'),
    with_("'single': 'quotes'"), with_('"last": 6,'), with_('"a": 1 /* said */'), SETTLE, SETTLE + "} {}",
    SETTLE + "}" + SETTLE + "}", SETTLE + "} " + SETTLE + "}", SETTLE + "} and more", SETTLE + "}, " + SETTLE + "}",
    SETTLE + '}, "last": 2', SETTLE + "}]}", SETTLE + "}]", " " + SETTLE + "}", SETTLE + "} ", SETTLE + "}\0",
    "\ufeff" + SETTLE + "}",
    SETTLE.replace('"first": 5', '"first": 7') + "}", SETTLE.replace('"accept"', "null") + "}",
    SETTLE.replace('"v": 2', '"v": 3') + "}", SETTLE.replace(str(NOON), "-86400001") + "}", ACQUIRE + ', "attempt": 2}',
    SETTLE.replace(str(NOON), "253402300800000") + "}", SETTLE.replace(str(NOON), "9223372036854775807") + "}",
    ACQUIRE.replace("attempt", "Attempt") + "}", HEAD + "}",
    HEAD + '"kind": "load"}', HEAD + '"kind": "load", "rows": 1, "sampled": 1, "buckets": {"1": [1, 2]}}',
    HEAD + '"kind": "fetch", "ranges": 3}', HEAD + '"kind": "of tomorrow"}', HEAD + '"kind": "settle", "seq',
    "{}", "{", "}", "{" + SETTLE + "}", "null", "true", "5", "[]", "[" + SETTLE + "}]", "   ", "\t", '"a"', "{]}", "\0",
]  # fmt: skip
"""Lines that Arrow does not see, or refuses, or that are no events of the common kinds."""
BROKEN = [b"\xff", b'{"member": "\xff"}', with_('"member": "m\xff"').encode("latin-1"), b"\xef\xbb\xbf", b"\xc3"]
