"""What a command works on: the node of a folder, or a running cluster. And how it asks before it removes something."""

from __future__ import annotations

import re
import socket
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

import laminar
from laminar.errors import InvalidError, UnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterator

AT = typer.Option(
    "./data",
    "--at",
    "-a",
    envvar="LAMINAR_AT",
    metavar="FOLDER|HOST:PORT",
    help="The folder, or the addresses of a running cluster (several with commas).",
)
SECRET = typer.Option(
    None,
    "--secret",
    envvar="LAMINAR_SECRET",
    metavar="SECRET",
    help="The secret of the node at an address. A folder has its own.",
    show_envvar=True,
)
JSON = typer.Option(False, "--json", help="Print it as JSON.")
YES = typer.Option(False, "--yes", "-y", help="Do not ask.")
STREAM = typer.Argument(..., metavar="STREAM", help="The stream, such as /shop/orders.")

_LISTENS_SECONDS = 5.0
_ADDRESSES = re.compile(r"[^/,\s]+:\d+(\s*,\s*[^/,\s]+:\d+)*")


@contextmanager
def opened(at: str, secret: str | None = None, *, create: bool = False) -> Iterator[laminar.Cluster]:
    """The cluster that ``--at`` names, closed at the end. Only with ``create`` may it make a folder."""
    check_target(at, create=create)
    with laminar.connect(at, secret=secret) if is_address(at) else laminar.open(at) as cluster:
        yield cluster


def check_target(at: str, *, create: bool = False) -> None:
    """Refuse an address at which nobody listens, and, unless one may be made, a folder that is not laminar's."""
    if is_address(at):
        _check_listens(at)
    elif not create:
        _check_there(Path(at))


def is_address(at: str) -> bool:
    """Whether it is host:port. A folder of that name is meant with ``./`` before it."""
    return _ADDRESSES.fullmatch(at) is not None


def _check_listens(addresses: str) -> None:
    """A client waits for a node that may come back; a person wants to know at once that nobody is there."""
    refused = ""
    for address in addresses.split(","):
        host, _, port = address.strip().rpartition(":")
        try:
            with socket.create_connection((host.strip("[]"), int(port)), timeout=_LISTENS_SECONDS):
                return
        except (OSError, OverflowError) as error:
            refused = str(error.strerror or error) if isinstance(error, OSError) else str(error)
    raise UnavailableError(f"no node listens at {addresses} ({refused}); is one running?", address=addresses)


def _check_there(folder: Path) -> None:
    try:
        str(folder).encode()
    except UnicodeEncodeError:
        raise InvalidError(f"path is {str(folder)!r}; its name is not UTF-8, name another with --at") from None
    try:
        if (folder / "folder.json").exists():
            return
        there = folder.exists()
    except OSError as error:
        raise InvalidError(f"{folder}: cannot be looked at, {error.strerror}") from None
    if there:
        raise InvalidError(f"{folder}: not a laminar folder (folder.json is not in it); name another with --at")
    raise InvalidError(
        f"{folder}: there is no such folder; name another with --at, or begin one with laminar stream create"
    )


def confirm(question: str, *, yes: bool) -> None:
    """Ask before something is gone for good. Where nobody can be asked, ``--yes`` must have been given."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise InvalidError(f"{question} Nobody can be asked here; give --yes if so")
    typer.confirm(question, abort=True)


__all__ = ["AT", "JSON", "SECRET", "STREAM", "YES", "check_target", "confirm", "is_address", "opened"]
