"""Commands `conformance`: tests of a cluster, and a cluster that tests clients."""
"""The commands `conformance ...`."""

from __future__ import annotations

import typer

from kafka_share_proxy.app.commands.broker_flags import dials_brokers
from kafka_share_proxy.app.commands.conformance_run import run

app = typer.Typer(
    help="Conformance with Kafka's protocol: test a cluster, or run a cluster that tests clients.",
    no_args_is_help=True,
)
app.command("run")(dials_brokers(run))
from kafka_share_proxy.app.commands import conformance_target
    help="Protocol conformance: a cluster in one process that tests clients.",
    add_completion=False,
    pretty_exceptions_enable=False,
@app.callback()
def conformance() -> None:
    """Protocol conformance: a cluster in one process that tests clients."""
app.command("target")(conformance_target.target)
