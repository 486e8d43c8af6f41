"""The ``laminar`` command.

Exit code 0 means done, 1 refused or failed (one line on stderr), 2 bad usage.
"""

from __future__ import annotations

import io
import sys

import typer

import laminar
from laminar.cli import append, bench, chaos, compact, demo, jobs, log, overview, plan, read, run, stories, streams
from laminar.errors import LaminarError

app = typer.Typer(
    name="laminar",
    help="Exactly one writer for every partition of a data stream.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode="rich",
)


def _print_version(wanted: bool) -> None:  # noqa: FBT001 - typer calls it with the flag's value
    if wanted:
        typer.echo(f"laminar {laminar.__version__}")
        raise typer.Exit


@app.callback()
def _laminar(
    *,
    version: bool = typer.Option(
        False, "--version", help="Print the version and stop.", callback=_print_version, is_eager=True
    ),
) -> None:
    pass


app.command("demo")(demo.demo)
app.command("status")(overview.status)
app.command("metrics")(overview.metrics)
app.command("partitions")(overview.partitions)
app.command("nodes")(overview.nodes)
app.add_typer(streams.app, name="stream")
app.command("append")(append.append)
app.command("read")(read.read)
app.command("ingest")(jobs.ingest)
app.command("export")(jobs.export)
app.command("replay")(jobs.replay)
app.command("verify")(jobs.verify)
app.command("compact")(compact.compact)
app.command("run")(run.run)
app.command("why")(stories.why)
app.command("resume")(stories.resume)
app.command("skip")(stories.skip)
app.command("trim")(stories.trim)
app.command("plan")(plan.plan)
app.add_typer(bench.app, name="bench")
app.command("chaos")(chaos.chaos)
app.add_typer(log.app, name="log")


def main() -> None:
    """Run the command; what laminar refuses becomes one line and exit code 1."""
    for output in (sys.stdout, sys.stderr):
        # A terminal that cannot show a bar or an arrow shows a question mark instead.
        if isinstance(output, io.TextIOWrapper):
            output.reconfigure(errors="replace")
    try:
        app()
        sys.stdout.flush()
    except LaminarError as error:
        sys.stderr.write(f"laminar: {error}\n")
        sys.exit(1)
    except BrokenPipeError:
        # The reader of our output has gone (`laminar plan … | head`). Closing stderr keeps Python from saying so again
        # when it flushes at exit.
        sys.stderr.close()
        sys.exit(1)
    except OSError as error:
        sys.stderr.write(f"laminar: the output could not be written, {error.strerror}\n")
        # What is left in the buffer cannot be written either; Python must not try again at exit.
        sys.stdout = None
        sys.exit(1)


__all__ = ["app", "main"]
