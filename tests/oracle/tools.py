"""Output of Kafka's own administration tools, in a form by which two clusters can be compared."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tests.support.tool_shell import ToolShell

GROUPS, SHARE_GROUPS, CONFIGS = "GroupsCommand", "consumer.group.ShareGroupCommand", "kafka.admin.ConfigCommand"

_STACK = re.compile(r"^\s+(at |\.\.\. \d+ more)")
_ADDRESS = re.compile(r"127\.0\.0\.1:\d+ *")


def printed(shell: ToolShell, bootstrap: str, tool: str, arguments: Sequence[str], mine: str) -> list[str]:
    """The lines a tool prints, status first: without stack traces and addresses, blanks as one.

    Of lists of groups only those whose name begins with `mine`, sorted.
    """
    done = shell.run(tool, "--bootstrap-server", bootstrap, *arguments)
    lines = [_plain(line) for line in f"{done.output}\n{done.errors}".splitlines() if not _STACK.match(line)]
    if "--list" in arguments:
        lines = sorted(line for line in lines if line.startswith((mine, "GROUP")))
    return [f"status {done.status}", *filter(None, lines)]


def _plain(line: str) -> str:
    return " ".join(_ADDRESS.sub("ADDRESS ", line).split())
