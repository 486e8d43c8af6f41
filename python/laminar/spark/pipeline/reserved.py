"""Options of Spark that a pipeline sets itself. Given a second time they would be ignored, or win over a key."""

from __future__ import annotations

from collections.abc import Mapping

from laminar.errors import InvalidError

_PLACE = {
    "endpoint": "use the key endpoint",
    "path": "use the key stream",
    "stream": "use the key stream",
    "secret": "give --secret, or set LAMINAR_SECRET",
}
_TRANSACTION = {
    "txnAppId": "leave it out, batches are known by the checkpoint",
    "txnVersion": "leave it out, batches are known by the checkpoint",
}
_PATH = {"path": "use the key path"}

#: By the class of the source or sink: the option, and what to do instead.
_RESERVED: Mapping[str, Mapping[str, str]] = {
    "StreamSource": {**_PLACE, "startingOffsets": "use the key start", "startingTimestamp": "use the key start"},
    "FilesSource": _PATH,
    "KafkaSource": {
        "kafka.bootstrap.servers": "use the key servers",
        "subscribe": "use the key topic",
        "subscribePattern": "use the key topic",
        "assign": "use the key topic",
        "startingOffsets": "use the key start",
    },
    "RateSource": {"rowsPerSecond": "use the key rows_per_second"},
    "StreamSink": {
        **_PLACE,
        **_TRANSACTION,
        "writer": "use the key writer",
        "adoptQuery": "use the key adopt_query",
        "checkpointLocation": "use the key checkpoints of the file",
        "queryName": "leave it out, queries are named by the pipeline",
    },
    "ParquetSink": _PATH,
    "DeltaSink": {**_PATH, **_TRANSACTION},
}


def check_options(options: Mapping[str, str], of: type, where: str) -> None:
    """Refuse what a key says, and what is there twice: Spark does not tell upper from lower case."""
    instead = {name.lower(): hint for name, hint in _RESERVED[of.__name__].items()}
    seen: dict[str, str] = {}
    for name in options:
        folded = name.lower()
        if folded in instead:
            raise InvalidError(f"{where}: options has {name}, which the pipeline sets; {instead[folded]}")
        if folded in seen:
            raise InvalidError(f"{where}: options has {seen[folded]} and {name}, which are the same; give one of them")
        seen[folded] = name


__all__ = ["check_options"]
