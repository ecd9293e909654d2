"""The commands `conformance ...`."""

from __future__ import annotations

import typer

from kafka_share_proxy.app.commands.conformance_run import run
from kafka_share_proxy.app.commands.conformance_target import target
from kafka_share_proxy.app.commands.setting_flags import reads_settings

app = typer.Typer(
    help="Conformance with Kafka's protocol: test a cluster, or run a cluster that tests clients.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.command("run")(reads_settings(run))
app.command("target")(target)
