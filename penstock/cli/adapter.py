"""``penstock adapter``: a server that takes events from clients in any language."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from penstock.app.duration import above_zero, seconds_of
from penstock.cli.arguments import SPOOL, AppCommand, loaded, pairs
from penstock.cli.echo import echo
from penstock.errors import ConfigurationError
from penstock.extras import needs

if TYPE_CHECKING:
    from penstock.connectors.kafka.place import KafkaPlace


@click.command(cls=AppCommand, context_settings={"ignore_unknown_options": True, "allow_extra_args": True})
@click.argument("app", metavar="APP.py")
@click.option(
    "--spool", type=SPOOL, default=Path("spool"), show_default=True, help="Directory of the embedded log, on a local disk."
)
@click.option(
    "--stream",
    "streams",
    multiple=True,
    metavar="NAME=kafka:HOST:PORT/TOPIC",
    help="Keep a stream in Kafka instead of the embedded log.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=8470, show_default=True, type=click.IntRange(1, 65535), help="Port to listen on.")
@click.option("--tokens", type=click.Path(path_type=Path), help="JSON file of the tokens of each role.")
@click.option("--certificate", type=click.Path(path_type=Path), help="PEM file; with --private-key, serves TLS.")
@click.option("--private-key", type=click.Path(path_type=Path), help="PEM file.")
@click.option("--behind-proxy", is_flag=True, help="A proxy has the TLS, where other machines can ask.")
@click.option(
    "--gate", "gates", multiple=True, metavar="NAME=K,T", help="Batch size and flush timer of a stream, as 1000,50ms."
)
@click.option("--plan", type=click.Path(path_type=Path), help='JSON file of gates: {"gates": {"NAME": {"batch_size": 1000}}}.')
@click.option("--max-body", default=8 << 20, show_default=True, type=click.IntRange(1), help="Bytes of a request.")
@click.option("--max-event", default=1 << 20, show_default=True, type=click.IntRange(1), help="Bytes of an event.")
@click.option("--max-held", default=128 << 20, show_default=True, type=click.IntRange(1), help="Bytes held in memory.")
@click.option("--max-memory", default=700 << 20, show_default=True, type=click.IntRange(1), help="Bytes of the whole process.")
@click.option("--receive-within", default="30 s", show_default=True, help="Time for a request's body to come.")
@click.option("--answer-within", default="30 s", show_default=True, help="Time for it to become durable, before a 503.")
@click.option("--retain", default="7 d", show_default=True, help="How long events are kept that every reader has passed.")
@click.option("--remember", default="1 d", show_default=True, help="How long ids are known.")
@click.option("--allow-origin", "origins", multiple=True, help="A web origin whose pages may use the adapter.")
@click.option("--allow-host", "hosts", multiple=True, help="A name by which the adapter is asked without tokens.")
@click.option("--until-stdin-closes", is_flag=True, hidden=True)
@click.pass_context
def adapter(context: click.Context, /, app: str, **given: Any) -> None:
    """Take an application's events from clients over HTTP or WebSockets, and hand them its results.

    A request is answered when its events are durable. Ctrl-C stops after those under way are answered.

    \b
    Example:
      penstock adapter app.py --spool spool &
      curl http://127.0.0.1:8470/streams/Words -d '{"text": "gate"}'
      penstock run app.py --source Words=log:spool
    """
    topology = loaded(context, app)[0].topology()
    with needs():
        from penstock.adapter.process import LISTENS
        from penstock.adapter.server import Adapter, AdapterOptions
        from penstock.adapter.streams import Limits
        from penstock.web.access import Access
        from penstock.web.server import Certificate

    options = AdapterOptions(
        spool=given["spool"],
        kafka={name: _place(uri) for name, uri in pairs("--stream", given["streams"]).items()},
        host=given["host"],
        port=given["port"],
        tls=Certificate.of(given["certificate"], given["private_key"]),
        behind_proxy=given["behind_proxy"],
        access=Access() if given["tokens"] is None else Access.read(given["tokens"]),
        limits=Limits(
            body=given["max_body"],
            event=given["max_event"],
            held=given["max_held"],
            memory=given["max_memory"],
            receive=above_zero("--receive-within", given["receive_within"]),
            answer=above_zero("--answer-within", given["answer_within"]),
        ),
        gates=_gates(given["plan"], given["gates"]),
        retain=seconds_of("--retain", given["retain"]),
        remember=above_zero("--remember", given["remember"]),
        origins=given["origins"],
        hosts=given["hosts"],
        leash=given["until_stdin_closes"],
    )
    Adapter(topology, options).serve(lambda: echo(f"{LISTENS}{options.url}; Ctrl-C stops.", err=True))


def _place(uri: str) -> KafkaPlace:
    from penstock.connectors.kafka.place import KafkaPlace, has_registry
    from penstock.connectors.uri import Uri

    parsed = Uri.parse(uri)
    if has_registry(parsed):
        raise ConfigurationError(
            f"{parsed.place}: the adapter sends and answers in JSON; leave registry out, and let what writes by one send to "
            "the topic."
        )
    return KafkaPlace.of(parsed)


def _gates(plan: Path | None, texts: tuple[str, ...]) -> Any:
    """The gates by stream, from the plan and then from ``--gate``, which wins."""
    import msgspec

    from penstock.runs.gate import GatePlan, TransferGate

    gates: dict[str, TransferGate] = {}
    if plan is not None:
        try:
            gates = msgspec.json.decode(plan.read_bytes(), type=GatePlan).gates
        except (OSError, msgspec.DecodeError, RecursionError) as error:
            raise ConfigurationError(
                f'The plan {plan} cannot be read ({error}); write {{"gates": {{"NAME": {{"batch_size": 1000, "flush_timer_s": '
                "0.05}}}."
            ) from error
    for name, text in pairs("--gate", texts).items():
        size, _, timer = text.partition(",")
        if not size.isdecimal():
            raise ConfigurationError(f"--gate {name}={text}: write a batch size and a flush timer, as {name}=1000,50ms.")
        gates[name] = TransferGate(int(size), seconds_of(f"--gate {name}={text}", timer) if timer else 0.0)
    return gates
