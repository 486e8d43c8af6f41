"""Clusters: the node of a folder, opened in this process or found in another, or a running cluster."""

from __future__ import annotations

import difflib
import os
import sys
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Protocol

from laminar import _native
from laminar.assignment import AssignmentConstraints, AssignmentPlan, ConsistentHashAssigner, TopologyChange
from laminar.errors import InvalidError
from laminar.status import ClusterStatus, NodeStatus, PartitionStory
from laminar.stream import Retention, Stream, StreamLimits

if TYPE_CHECKING:
    import pyarrow as pa
    from typing_extensions import Self

    from laminar.metadata import DeltaMetadata

TIMEOUT = 30.0


class Machine(Protocol):
    """A state machine that an application brings: one object a partition.

    ``apply`` must do all of a batch or nothing: after an exception the same batch is given again, some times, and
    then the partition pauses. Equal batches in the same order must give equal states, and ``snapshot`` equal bytes
    for equal states: no clock, no chance.
    """

    def apply(self, batch: pa.RecordBatch) -> None:
        """Take a batch over into the state, whole or not at all."""

    def snapshot(self) -> bytes:
        """The state as bytes. It must not fail: a partition whose state cannot be had pauses."""

    def restore(self, state: bytes) -> None:
        """Take over what ``snapshot`` returned, in place of the state there is."""


Machines = Mapping[str, type[Machine]]


class Cluster:
    """The node of a folder, or a running cluster. Made by ``laminar.open`` and ``laminar.connect``.

    It pickles as what it was opened with, and connects where it is used. A forked child may use it too. It stays with
    the cluster that it found first, in all of these: another one in the same place is refused with ``InvalidError``.

    >>> import laminar, pyarrow as pa, tempfile
    >>> schema = pa.schema({"order": pa.int64()})
    >>> with tempfile.TemporaryDirectory() as folder, laminar.open(folder) as db:
    ...     orders = db.create_stream("/shop/orders", partitions=4, schema=schema, key="order")
    ...     rows = orders.append([{"order": 1}, {"order": 2}]).rows
    ...     print(rows, orders.read().read_all().num_rows)
    2 2
    """

    def __init__(self, native: _native.Cluster, arguments: tuple[Any, ...], described: str) -> None:
        self._native = native
        self._arguments = arguments
        self._described = described

    def create_stream(  # noqa: PLR0913 - each is a property of the stream
        self,
        path: str,
        partitions: int = 1,
        schema: pa.Schema | None = None,
        key: str | Sequence[str] | None = None,
        machine: str = "log",
        *,
        retention: Retention | None = None,
        limits: StreamLimits | None = None,
        exist_ok: bool = False,
    ) -> Stream:
        """Create a stream. Without a schema it carries keys and values as bytes.

        ``key`` names the columns that say which partition a row goes to. ``machine`` is ``log``, ``kv`` (keeps the
        newest row of each key) or one of those given to ``laminar.open``. ``retention=None`` keeps rows for ever.
        With ``exist_ok`` a stream that is there is returned, if schema, key and machine are the same.
        """
        names = [] if key is None else [key] if isinstance(key, str) else list(key)
        if schema is None and machine not in ("log", "kv"):
            raise InvalidError(f"stream {path}: a machine of an application needs a schema; give one", stream=path)
        try:
            native = self._native.create_stream(
                path,
                partitions,
                schema=schema,
                key=names,
                machine=machine,
                retention=(retention or Retention())._native(),
                row_bytes_max=(limits or StreamLimits()).row_bytes,
            )
        except InvalidError as refused:
            there = self._there(path) if exist_ok else None
            if there is None:
                raise
            _check_same(there, schema, names, machine, refused)
            return there
        return Stream(self, path, native=native)

    def _there(self, path: str) -> Stream | None:
        try:
            return self.stream(path)
        except InvalidError:
            return None

    def stream(self, path: str) -> Stream:
        """A stream that is there."""
        stream = Stream(self, path)
        stream._described()
        return stream

    def streams(self, prefix: str = "") -> list[Stream]:
        """The streams whose names begin so, in order."""
        return [Stream(self, path, stream_id) for path, stream_id in self._native.streams(prefix)]

    def drop_stream(self, path: str) -> None:
        """Drop a stream with all its rows. Its ids and epochs are never used again."""
        self._native.drop_stream(path)

    def metadata(self, consistency: Literal["linearizable", "local"] = "linearizable") -> DeltaMetadata:
        """Streams, owners and epochs, nodes: as of now, or with ``local`` as the node last heard."""
        if consistency not in ("linearizable", "local"):
            raise InvalidError(f"consistency is {consistency!r}; it must be linearizable or local")
        return self._native.metadata(consistency == "linearizable")

    def status(self, stream: str | None = None, *, partitions: bool = True) -> ClusterStatus:
        """What the node does, with its partitions: of one stream, or of all."""
        return ClusterStatus._of(self._native.status(partitions=partitions, stream=stream))

    def metrics(self) -> str:
        """What the node counted, as text in the format that Prometheus reads. ``docs/operating.md`` lists the names."""
        return self._native.metrics()

    @property
    def metrics_address(self) -> str | None:
        """Where the node answers ``GET /metrics`` and ``GET /health``; ``None`` if it was opened without an address."""
        return self.status(partitions=False).node.metrics_address or None

    def nodes(self) -> list[NodeStatus]:
        """The servers, and the runs of writers."""
        return list(self.status(partitions=False).nodes)

    def why(self, stream: str, partition: int | None = None) -> list[PartitionStory]:
        """Who owned partitions when, at which epoch, who fenced whom, and which writes were refused."""
        return [PartitionStory._of(stream, story) for story in self._native.why(stream, partition)]

    def resume(self, stream: str, partition: int) -> bool:
        """Let a paused partition try again; false if it was not paused."""
        return self._native.resume(self.stream(stream)._native.partition_id(partition))

    def skip(self, stream: str, partition: int, index: int) -> None:
        """Leave out a record that its machine cannot apply, for good. ``status`` tells the index: ``paused_at``."""
        self._native.skip(self.stream(stream)._native.partition_id(partition), index)

    def snapshot(self) -> None:
        """Have both groups build a snapshot now."""
        self._native.snapshot("metadata")
        self._native.snapshot("data")

    def plan(
        self, constraints: AssignmentConstraints | None = None, *, assigner: ConsistentHashAssigner | None = None
    ) -> AssignmentPlan:
        """What a rebalance would do: a dry run, which changes nothing."""
        metadata = self.metadata()
        return (assigner or ConsistentHashAssigner()).rebalance(
            metadata.ownership(), metadata.servers(), TopologyChange.manual_rebalance(), constraints
        )

    def close(self) -> None:
        """End the handle. A node in this process ends with its last handle. A second time does nothing.

        It waits for the node up to ``close_timeout``, a setting of ``laminar.open``. One that needs longer is an
        ``UnavailableError``; it goes on stopping, and the folder stays locked until it has.
        """
        self._native.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return self._arguments[0], (*self._arguments[1:], self._native.cluster_id)

    def __eq__(self, other: object) -> bool:
        return self._arguments == other._arguments if isinstance(other, Cluster) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._described)

    def __repr__(self) -> str:
        return f"Cluster({self._described!r})"


def open(  # noqa: A001 - the name that people learn: laminar.open
    path: str | os.PathLike[str],
    *,
    detached: bool = False,
    machines: Machines | None = None,
    timeout: float = TIMEOUT,
    **settings: Any,
) -> Cluster:
    """Open the node of a folder. If no process is the node, this one becomes it; else it connects to that process.

    With ``detached`` the node is a process of its own, started by the first client and gone soon after the last.
    ``machines`` are the application's state machines by name, see ``laminar.Machine``; those of a detached node must be
    importable. ``timeout`` is how long a call may take, in seconds. ``settings`` are those of the node, used by whoever
    becomes it; with ``metrics_address="127.0.0.1:9464"`` it answers ``GET /metrics`` and ``GET /health`` there.
    """
    _check_settings(settings)
    cluster = _open(_absolute(path), detached, dict(machines or {}), timeout, settings)
    cluster._native.hello()
    return cluster


def connect(address_or_path: str | os.PathLike[str], *, secret: str | None = None, timeout: float = TIMEOUT) -> Cluster:
    """Connect to a running cluster by its addresses, or to the node of a folder. Never becomes the node.

    A folder that is not there, or is not laminar's, is an ``InvalidError`` at once. In one of laminar's the node may be
    coming back: ``connect`` waits for it until ``timeout`` (seconds).
    """
    target = _text(address_or_path)
    folder = isinstance(address_or_path, os.PathLike) or os.sep in target or Path(target).is_dir()
    cluster = _connect(_absolute(target) if folder else target, folder, secret, timeout)
    cluster._native.hello()
    return cluster


def _absolute(path: str | os.PathLike[str]) -> str:
    # Not resolved: a link may be meant to be moved. The pickled handle is used in other working directories.
    return _text(Path(_text(path)).absolute())


def _text(path: str | os.PathLike[str]) -> str:
    if not isinstance(path, str | os.PathLike) or not isinstance(text := os.fspath(path), str):
        raise InvalidError(f"path is {path!r}; it must be a path")
    try:
        text.encode()
    except UnicodeEncodeError:
        # Bytes of a name that are not UTF-8 are lone surrogates in Python.
        raise InvalidError(f"path is {text!r}; its name is not UTF-8, use another") from None
    return text


def _open(  # noqa: PLR0913, PLR0917 - what a handle is opened with
    path: str,
    detached: bool,  # noqa: FBT001
    machines: Machines,
    timeout: float,
    settings: Mapping[str, Any],
    cluster_id: str | None = None,
) -> Cluster:
    """A handle that has not connected yet: what a pickle comes back as."""
    native = _native.Cluster.of_folder(
        path,
        "detached" if detached else "embedded",
        command=_command(path, machines, settings) if detached else [],
        machines={name: _checked_machine(name, machine) for name, machine in machines.items()},
        settings=dict(settings),
        timeout=timeout,
        client_id=uuid.uuid4().hex,
        cluster_id=cluster_id,
    )
    return Cluster(native, (_open, path, detached, machines, timeout, settings), path)


def _connect(
    target: str,
    folder: bool,  # noqa: FBT001
    secret: str | None,
    timeout: float,
    cluster_id: str | None = None,
) -> Cluster:
    """A handle that has not connected yet: what a pickle comes back as."""
    client_id = uuid.uuid4().hex
    if folder:
        native = _native.Cluster.of_folder(
            target,
            "client",
            command=[],
            machines={},
            settings={},
            timeout=timeout,
            client_id=client_id,
            cluster_id=cluster_id,
        )
    else:
        native = _native.Cluster.of_addresses(
            target, secret=secret, timeout=timeout, client_id=client_id, cluster_id=cluster_id
        )
    return Cluster(native, (_connect, target, folder, secret, timeout), target)


def _command(path: str, machines: Machines, settings: Mapping[str, Any]) -> list[str]:
    command = [sys.executable, "-m", "laminar.node", path]
    for name, machine in machines.items():
        if machine.__module__ == "__main__" or "<locals>" in machine.__qualname__:
            raise InvalidError(
                f"machine {name!r}: {machine.__qualname__} is in {machine.__module__}, which the node's process cannot "
                "import; put the class into a module"
            )
        command += ["--machine", f"{name}={machine.__module__}:{machine.__qualname__}"]
    for name, value in settings.items():
        command += ["--set", f"{name}={value}"]
    return command


def _checked_machine(name: Any, machine: Any) -> Any:
    if not isinstance(name, str) or name in ("", "log", "kv"):
        raise InvalidError(f"a machine is named {name!r}; it must be a text other than log and kv")
    missing = [method for method in ("apply", "snapshot", "restore") if not callable(getattr(machine, method, None))]
    if missing or not callable(machine):
        raise InvalidError(f"machine {name!r} is {machine!r}; it must be a class with apply, snapshot and restore")
    return machine


def _check_settings(settings: Mapping[str, Any]) -> None:
    known = _native.node_settings()
    for name in settings:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
            raise InvalidError(f"there is no setting {name}; {hint}")


def _check_same(there: Stream, schema: Any, key: list[str], machine: str, refused: InvalidError) -> None:
    is_bytes = schema is None
    same_schema = there.is_bytes if is_bytes else there.schema.equals(_native.stored_schema(schema))
    same_key = there.key == key or (is_bytes and key in ([], ["key"]))
    if not (same_schema and same_key and there.machine == machine):
        raise InvalidError(
            f"stream {there.path}: it is there with another schema, key or machine; drop it or use another name",
            stream=there.path,
        ) from refused


__all__ = ["Cluster", "Machine", "connect", "open"]
