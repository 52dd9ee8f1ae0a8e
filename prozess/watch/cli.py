"""The command `prozess watch`: its options, its status line, and its endpoint."""

import os
import shutil
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from prozess.app.commands.options import CONFIGURATION, ClientConfigOption, WebhookOption, finite
from prozess.harness.clock import NS_PER_S, Clock
from prozess.harness.errors import BadInput

if TYPE_CHECKING:
    from prozess.app.webhook import Webhook
    from prozess.watch.state import WatchOptions

app = typer.Typer()
OUTAGE_S_MIN, OUTAGE_S_MAX = 1.0, 3600.0
RATE_HZ_MAX = 100.0
WEBHOOK_END_S = 2.0
"""How long the last messages to the webhook may take in the end."""
PLAIN_STATUS_S = 60.0
"""How often the status is printed where there is no terminal on which one line could change."""


@app.command(rich_help_panel=CONFIGURATION)
def watch(  # noqa: PLR0913 - the options of a command
    cluster: Annotated[
        str, typer.Option("--cluster", metavar="HOST:PORT,…", help="The addresses of the cluster, as clients use them.")
    ],
    topic: Annotated[
        str | None,
        typer.Option(
            "--topic",
            help="The topic to make. It must begin with prozess-watch- and not exist. Default: a random name.",
        ),
    ] = None,
    copies: Annotated[
        int | None,
        typer.Option(
            "--replication-factor", min=1, help="Replicas of the topic. Default: 3, or as many as there are brokers."
        ),
    ] = None,
    rate_hz: Annotated[float, typer.Option("--rate", callback=finite, help="Records per second to each broker.")] = 2.0,
    outage_s: Annotated[
        float,
        typer.Option(
            "--outage", callback=finite, help="How many seconds without an acknowledged record are an outage."
        ),
    ] = 6.5,
    duration: Annotated[
        str | None, typer.Option("--for", help="Watch for 90s, 30m, 8h or 2d. Default: until you stop it.")
    ] = None,
    metrics: Annotated[
        str | None,
        typer.Option(
            "--metrics", metavar="[HOST:]PORT", help="Serve /metrics for Prometheus. Without a host on loopback only."
        ),
    ] = None,
    keep_topic: Annotated[bool, typer.Option("--keep-topic", help="Leave the topic there in the end.")] = False,
    client_config: ClientConfigOption = None,
    webhook: WebhookOption = None,
) -> None:
    """Watch a cluster in use, and report losses and outages. A watch sends a few records through every broker, reads them
    back, and checks what became of them. It writes to one topic, which it makes, and deletes in the end. Exit code 0: nothing
    was seen; 1: an outage, unreadable records or a violation was seen; 2: something is unknown."""
    from prozess.app.webhook import webhook_of
    from prozess.harness.clock import parse_duration
    from prozess.harness.config.existing_clusters import refuse_bad_servers, use
    from prozess.watch.state import WatchOptions

    if not 0 < rate_hz <= RATE_HZ_MAX:
        raise BadInput(
            f"--rate {rate_hz:g} must be above 0 and at most {RATE_HZ_MAX:g}. A canary needs a few records only."
        )
    if not OUTAGE_S_MIN <= outage_s <= OUTAGE_S_MAX:
        raise BadInput(
            f"--outage {outage_s:g} must be at least {OUTAGE_S_MIN:g} and at most {OUTAGE_S_MAX:g}: a new leader takes "
            "longer than a second to be elected."
        )
    use(client_config)
    duration_s = None if duration is None else parse_duration(duration)
    refuse_bad_servers(cluster, "--cluster")
    options = WatchOptions(cluster, topic, copies, rate_hz, outage_s, duration_s, keep_topic)
    raise typer.Exit(carry_out(options, metrics, webhook_of(webhook)))


def carry_out(options: "WatchOptions", metrics: str | None, webhook: "Webhook | None") -> int:
    """Watches until somebody asks it to stop, and returns the exit code."""
    from prozess.app import run_process
    from prozess.harness.clock import SystemClock
    from prozess.harness.config.existing_clusters import login_here
    from prozess.watch.metrics import build_info, metrics_of, status_of, up
    from prozess.watch.metrics_endpoint import Endpoint, parse_address, text_of
    from prozess.watch.notices import Notices
    from prozess.watch.watcher import ClusterWatch, topic_of

    clock, line = SystemClock(), StatusLine(SystemClock())
    address = None if metrics is None else parse_address(metrics)
    topic = topic_of(options, clock=clock, login=login_here())
    notices = None if webhook is None else Notices(webhook, f"prozess watch of cluster {topic.cluster_id}")

    def report(kind: str, text: str) -> None:
        line.report(text)
        if notices is not None and kind != "note":
            notices.put(kind, text)

    watch = ClusterWatch(options, topic, report=report, clock=clock)
    page = [text_of([up(watching=False), build_info()])]
    endpoint = None if address is None else Endpoint(address, lambda: page[0], clock)

    def each_second() -> None:
        if endpoint is not None:
            page[0] = text_of(metrics_of(watch, notices, clock))
        line.show(status_of(watch, clock))

    try:
        if endpoint is not None:
            line.report("metrics are at http://{}:{}/metrics".format(*endpoint.address))
        with run_process.listening() as stop:
            code = watch.run(lambda: stop.asked, each_second)
    finally:
        line.end()
        if endpoint is not None:
            endpoint.close()
        if notices is not None and not notices.close(WEBHOOK_END_S):
            typer.echo(f"The webhook did not take the last messages within {WEBHOOK_END_S:g} s.", err=True)
    typer.echo(f"{CONCLUSIONS[code]}. {status_of(watch, clock)}")
    if watch.is_silent():
        # The interpreter would end the clients of librdkafka, and they would wait for brokers that do not answer (seen: 5 s).
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(run_process.exit_code(code))
    return int(code)


CONCLUSIONS = {
    0: "Nothing was seen",
    1: "An outage, unreadable records or a violation was seen",
    2: "Something is unknown",
}


class StatusLine:
    """The last line of a terminal, which changes. Elsewhere the status is printed now and then."""

    def __init__(self, clock: Clock) -> None:
        from prozess.harness.printable import raw_of

        self._clock, self._raw = clock, raw_of(sys.stderr)
        self._changes = sys.stderr.isatty() and sys.stdout.isatty()
        self._shown_ns: int | None = None

    def report(self, text: str) -> None:
        """Prints a line that is not overwritten."""
        self.end()
        typer.echo(text)
        sys.stdout.flush()

    def show(self, text: str) -> None:
        """Shows the current status on the status line."""
        now_ns = self._clock.monotonic_ns()
        if self._changes:
            width = shutil.get_terminal_size().columns
            self._raw.write(f"\r\x1b[2K{text[: width - 1]}")
            self._raw.flush()
        elif self._shown_ns is None or now_ns - self._shown_ns >= PLAIN_STATUS_S * NS_PER_S:
            self._shown_ns = now_ns
            typer.echo(text, err=True)

    def end(self) -> None:
        """Removes the line that changes."""
        if self._changes:
            self._raw.write("\r\x1b[2K")
            self._raw.flush()
