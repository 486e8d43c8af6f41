"""The file that describes a cluster to ``laminar plan``.

Every value is checked where it is read, so that an error names the file, the key and the value.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from laminar.assignment import AffinityHint, AntiAffinityGroup, AssignmentConstraints, NodeInfo
from laminar.errors import InvalidError

if TYPE_CHECKING:
    from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:  # pragma: no cover - the same parser under its older name
    import tomli as tomllib

PARTITIONS_MAX = 1_000_000
"""More partitions than any plan has been tried with; a slip of the keyboard in a range should not fill the memory."""

_TOP_KEYS = ("cluster", "nodes", "constraints", "current")
_CLUSTER_KEYS = ("name", "partitions")
_NODE_KEYS = ("id", "cores", "memory_bytes", "failure_domain", "tags", "state", "address", "weight")
_GROUP_KEYS = ("name", "partition_ids")
_HINT_KEYS = ("name", "partition_ids", "strength")
_CONSTRAINT_KEYS = (
    "max_partitions_per_node",
    "min_failure_domains",
    "max_memory_per_node",
    "partition_memory_bytes",
    "anti_affinity_groups",
    "affinity_hints",
)


@dataclass
class ClusterFile:
    """What the file says: nodes, partitions, constraints, and who owns what now."""

    name: str
    nodes: list[NodeInfo]
    partitions: list[int]
    constraints: AssignmentConstraints
    weights: dict[int, float] = field(default_factory=dict)
    current: dict[int, tuple[int, int]] | None = None


def read_cluster_file(path: Path) -> ClusterFile:
    """Read and check a cluster file; every mistake is an ``InvalidError`` that names the file and the key."""
    try:
        with path.open("rb") as file:
            content = tomllib.load(file)
    except OSError as error:
        raise InvalidError(f"{path}: cannot be read, {error.strerror}; give the path of a cluster file") from error
    except (ValueError, RecursionError) as error:
        # Not TOML, not text, a number of thousands of digits, or nested beyond reason.
        raise InvalidError(f"{path}: is not TOML, {error}; see examples/ for cluster files") from error
    try:
        return _read(content, default_name=path.stem)
    except InvalidError as error:
        raise InvalidError(f"{path}: {error}") from error


def _read(content: dict[str, Any], default_name: str) -> ClusterFile:
    _known_keys(content, _TOP_KEYS, "the file")
    cluster = _table(content, "cluster")
    _known_keys(cluster, _CLUSTER_KEYS, "[cluster]")
    current = _current(content["current"]) if "current" in content else None
    if "partitions" in cluster:
        partitions = _partitions(cluster["partitions"], "cluster.partitions")
    elif current is not None:
        partitions = sorted(current)
    else:
        raise InvalidError("cluster.partitions is missing; give a count, or a list of ids and ranges")
    if current is not None and set(current) - set(partitions):
        stray = min(set(current) - set(partitions))
        raise InvalidError(
            f"current names partition {stray}, which is not in cluster.partitions; add it there or remove it"
        )
    nodes, weights = _nodes(content.get("nodes", []))
    constraints = _constraints(_table(content, "constraints"), set(partitions), weights)
    return ClusterFile(str(cluster.get("name", default_name)), nodes, partitions, constraints, weights, current)


def _nodes(rows: object) -> tuple[list[NodeInfo], dict[int, float]]:
    nodes: list[NodeInfo] = []
    weights: dict[int, float] = {}
    for position, row in enumerate(_tables(rows, "nodes"), start=1):
        where = f"node {position} of [[nodes]]"
        _known_keys(row, _NODE_KEYS, where)
        fields = {key: value for key, value in row.items() if key not in ("id", "weight")}
        node = _inside(where, NodeInfo, row.get("id"), **fields)
        if any(node.id == other.id for other in nodes):
            raise InvalidError(f"{where}: id {node.id} is used twice; give each node its own")
        nodes.append(node)
        if "weight" in row:
            weights[node.id] = row["weight"]
    return nodes, weights


def _constraints(table: dict[str, Any], partitions: set[int], weights: dict[int, float]) -> AssignmentConstraints:
    _known_keys(table, _CONSTRAINT_KEYS, "[constraints]")
    fields = dict(table)
    fields["anti_affinity_groups"] = [
        _inside("constraints.anti_affinity_groups", AntiAffinityGroup, **row)
        for row in _groups(table, "anti_affinity_groups", _GROUP_KEYS, partitions)
    ]
    fields["affinity_hints"] = [
        _inside("constraints.affinity_hints", AffinityHint, **row)
        for row in _groups(table, "affinity_hints", _HINT_KEYS, partitions)
    ]
    memory = fields.get("partition_memory_bytes")
    if isinstance(memory, dict):
        sizes: dict[int, Any] = {}
        for key, size in memory.items():
            _add_ids(sizes, key, size, "constraints.partition_memory_bytes")
        fields["partition_memory_bytes"] = sizes
    constraints: AssignmentConstraints = _inside("constraints", AssignmentConstraints, node_weights=weights, **fields)
    return constraints


def _groups(table: dict[str, Any], key: str, known: tuple[str, ...], partitions: set[int]) -> list[dict[str, Any]]:
    rows = []
    for row in _tables(table.get(key, []), f"constraints.{key}"):
        where = f"constraints.{key}"
        _known_keys(row, known, where)
        for required in ("name", "partition_ids"):
            if required not in row:
                raise InvalidError(f"{where}: {required} is missing")
        ids = _partitions(row["partition_ids"], f"{where}.partition_ids")
        stray = sorted(set(ids) - partitions)
        if stray:
            raise InvalidError(f"{where}: {row['name']!r} names partition {stray[0]}, which the cluster does not have")
        rows.append({**row, "partition_ids": ids})
    return rows


def _current(table: object) -> dict[int, tuple[int, int]]:
    if not isinstance(table, dict):
        raise InvalidError('current is not a table; write "partition or range" = [node, epoch]')
    current: dict[int, tuple[int, int]] = {}
    for key, value in table.items():
        if not (isinstance(value, list) and len(value) == 2 and all(type(number) is int for number in value)):
            raise InvalidError(f"current.{key} is {value!r}; it must be [node, epoch], two whole numbers")
        if not (0 <= value[0] < 2**64 and 1 <= value[1] < 2**64):
            raise InvalidError(f"current.{key} is {value}; the node must be from 0 and the epoch from 1, below 2**64")
        _add_ids(current, key, (value[0], value[1]), "current")
    return current


def _partitions(value: object, where: str) -> list[int]:
    """A count, or a list of ids and of ranges such as ``"16-31"``."""
    if type(value) is int:
        if not 0 <= value <= PARTITIONS_MAX:
            raise InvalidError(f"{where} is {value}; it must be from 0 to {PARTITIONS_MAX}")
        return list(range(value))
    if not isinstance(value, list):
        raise InvalidError(f'{where} is {value!r}; it must be a count, or a list of ids and ranges such as "16-31"')
    ids: dict[int, None] = {}
    for item in value:
        _add_ids(ids, item, None, where)
    return list(ids)


def _add_ids(found: dict[int, Any], item: object, value: object, where: str) -> None:
    """Enter each partition of an id or a range once."""
    for partition in _ids(item, where):
        if partition in found:
            raise InvalidError(f"{where} names partition {partition} twice; keep one")
        found[partition] = value
    if len(found) > PARTITIONS_MAX:
        raise InvalidError(f"{where} names {len(found)} partitions; it must name at most {PARTITIONS_MAX}")


def _ids(item: object, where: str) -> Iterable[int]:
    text = str(item)
    first, dash, last = text.partition("-")
    short = max(len(first), len(last)) <= len(str(2**32))
    if type(item) in (int, str) and short and first.isdecimal() and (last.isdecimal() or not dash):
        ids = range(int(first), int(last or first) + 1)
        if 0 < len(ids) <= PARTITIONS_MAX and ids[-1] < 2**32:
            return ids
    raise InvalidError(
        f'{where} has {item!r}; it must be a partition id or a rising range such as "16-31", below 4294967296'
    )


def _table(content: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = content.get(key, {})
    if not isinstance(value, dict):
        raise InvalidError(f"{key} is not a table; write [{key}]")
    return value


def _tables(rows: object, where: str) -> list[dict[str, Any]]:
    if not (isinstance(rows, list) and all(isinstance(row, dict) for row in rows)):
        raise InvalidError(f"{where} is not a list of tables; write [[{where}]]")
    return rows


def _known_keys(table: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
    for key in table:
        if key not in known:
            nearest = difflib.get_close_matches(key, known, n=1, cutoff=0.4)
            advice = f"did you mean {nearest[0]!r}?" if nearest else f"known are {', '.join(known)}"
            raise InvalidError(f"{where} has the unknown key {key!r}; {advice}")


def _inside(where: str, make: Any, *args: Any, **fields: Any) -> Any:
    """Make a value and say where in the file a wrong one stands."""
    try:
        return make(*args, **fields)
    except InvalidError as error:
        raise InvalidError(f"{where}: {error}") from error
