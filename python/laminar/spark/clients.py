"""The clusters that a process of Spark talks to: one handle each, kept for the life of the process.

Spark runs Python in many processes. Those of the driver plan and commit: they may start the node of a folder, in a
process of its own (``driver``). Those of executors read and write: they are clients only (``worker``), and never open
or create a folder. Workers are forked from a daemon and used again, so handles are made on first use and kept.

Every process that holds a handle keeps the node. Between the phases of a job there may be none for a while, so a node
that Spark starts stays for a minute after its last client (option ``nodeLinger``), and not for the usual five seconds.
"""

from __future__ import annotations

import difflib
import fcntl
import json
import re
from pathlib import Path

import laminar
from laminar.errors import InvalidError

#: How long a node that the driver started stays after its last client, in seconds.
LINGER_SECONDS = 60.0

#: How long a node may take to answer at first. A query that cannot work is to fail while somebody looks.
ANSWER_SECONDS = 3.0

_ADDRESSES = re.compile(r"[^/,\s]+:\d+(\s*,\s*[^/,\s]+:\d+)*")

_clusters: dict[tuple[str, str, str | None, float | None], laminar.Cluster] = {}


def is_address(endpoint: str) -> bool:
    """Whether it is ``host:port``, or several with commas. A folder of that name is meant with ``./`` before it."""
    return _ADDRESSES.fullmatch(endpoint) is not None


def absolute(endpoint: str) -> str:
    """The endpoint as other processes can use it: they may have another working directory."""
    return endpoint if is_address(endpoint) else str(Path(endpoint).absolute())


def driver(
    endpoint: str, *, secret: str | None = None, linger: float = LINGER_SECONDS, create: bool = False
) -> laminar.Cluster:
    """The cluster of an endpoint, for processes of the driver: the node of a folder is started if there is none.

    A folder that is not there is an error, unless ``create`` is set: a misspelt path must not become an empty folder.
    """
    # A handle starts the node again if that was killed, with the time it was made with.
    key = ("driver", absolute(endpoint), secret, linger)
    found = _kept(key)
    if found is None:
        found = _clusters.setdefault(key, _open(key[1], secret, linger, create=create))
    return found


def worker(endpoint: str, *, secret: str | None = None) -> laminar.Cluster:
    """The cluster of an endpoint that ``absolute`` gave, for processes of executors: a client only."""
    key = ("worker", endpoint, secret, None)
    found = _kept(key)
    if found is None:
        found = _clusters.setdefault(key, laminar.connect(_target(endpoint), secret=secret))
    return found


def stream_of(cluster: laminar.Cluster, path: str) -> laminar.Stream:
    """A stream that is there; one that is not is an error with the nearest name."""
    try:
        return cluster.stream(path)
    except InvalidError as refused:
        there = [stream.path for stream in cluster.streams()]
        if path in there:
            raise
        near = difflib.get_close_matches(path, there, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(sorted(there)[:10]) or 'none'}"
        message = f"there is no stream {path} at {cluster._described}; {hint}"
        raise InvalidError(message, stream=path) from refused


def _kept(key: tuple[str, str, str | None, float | None]) -> laminar.Cluster | None:
    """The handle that is kept, unless its folder was removed and made anew: a handle stays with its cluster."""
    found = _clusters.get(key)
    if found is None or is_address(key[1]):
        return found
    try:
        there = json.loads((Path(key[1]) / "folder.json").read_text())["cluster_id"]
    except (OSError, ValueError, KeyError):
        # The handle says what is wrong with the folder.
        return found
    if found._native.cluster_id in (None, there):
        return found
    _clusters.pop(key, None)
    return None


def _open(endpoint: str, secret: str | None, linger: float, *, create: bool) -> laminar.Cluster:
    if is_address(endpoint):
        # The handle that is kept waits longer: a node may be away for a while once it has answered.
        laminar.connect(endpoint, secret=secret, timeout=ANSWER_SECONDS).close()
        return laminar.connect(endpoint, secret=secret)
    folder = Path(endpoint)
    if not create:
        _check_folder(folder)
    if _is_held(folder):
        # A node that was stopped holds its folder, and opening would wait for it much longer.
        laminar.connect(folder, timeout=ANSWER_SECONDS).close()
    return laminar.open(folder, detached=True, client_timeout=linger)


def _is_held(folder: Path) -> bool:
    """Whether a process is the node of the folder. One that was killed leaves its address behind, but not its lock."""
    try:
        with (folder / "lock").open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        # Opening says what is wrong with the folder.
        return False
    return False


def _target(endpoint: str) -> str | Path:
    return endpoint if is_address(endpoint) else Path(endpoint)


def _check_folder(folder: Path) -> None:
    if (folder / "folder.json").exists():
        return
    what = "not a laminar folder (folder.json is not in it)" if folder.exists() else "there is no such folder"
    near = _nearest_folder(folder)
    hint = f"did you mean {near}?" if near else "give the folder of laminar.open, or host:port of a running node"
    raise InvalidError(f"endpoint {folder}: {what}; {hint}")


def _nearest_folder(folder: Path) -> Path | None:
    try:
        there = [found.parent.name for found in folder.parent.glob("*/folder.json")]
    except OSError:
        return None
    near = difflib.get_close_matches(folder.name, there, n=1)
    return folder.parent / near[0] if near else None


__all__ = ["ANSWER_SECONDS", "LINGER_SECONDS", "absolute", "driver", "is_address", "stream_of", "worker"]
