"""Decorator that runs hundreds of seeds or versions in one test: as tests of their own they would take longer."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any


def repeated(names: str, cases: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorate a test to run with each case, as `pytest.mark.parametrize` with the same arguments, but as one test.

    A failure has a note that names its case. All share the fixtures of the test.
    """
    parameters = [name.strip() for name in names.split(",")]
    listed = list(cases)
    assert listed, f"no case of {names}"

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def run_each(**fixtures: Any) -> None:
            for case in listed:
                values = dict(zip(parameters, case if len(parameters) > 1 else (case,), strict=True))
                try:
                    test(**values, **fixtures)
                except Exception as error:
                    error.add_note("with " + ", ".join(f"{name}={value!r}" for name, value in values.items()))
                    raise

        signature = inspect.signature(test)
        kept = [each for name, each in signature.parameters.items() if name not in parameters]
        run_each.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
        return run_each

    return decorate
