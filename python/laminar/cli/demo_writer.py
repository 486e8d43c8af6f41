"""A writer process of ``laminar demo``: appends numbered rows until it is told to stop, or is refused.

    python -m laminar.cli.demo_writer FOLDER STREAM NAME FIRST

It says what happens as JSON, a line each: ``claimed``, ``acked`` (ids that are on disk), ``refused``, ``stopped``.
"""

from __future__ import annotations

import json
import select
import sys
from typing import Any

import laminar

_BATCH_ROWS = 20


def main() -> int:
    """Write until told to stop."""
    folder, path, name, first = sys.argv[1:]
    # A client only: the node must outlive a writer that is paused.
    with laminar.connect(f"{folder}/") as db, db.stream(path).writer(name) as writer:
        _say(claimed={str(partition): epoch for partition, epoch in writer.epochs.items()}, node=writer.node_id)
        begin = int(first)
        while not _told_to_stop():
            ids = list(range(begin, begin + _BATCH_ROWS))
            begin += _BATCH_ROWS
            try:
                writer.append([{"id": number, "writer": name} for number in ids])
            except laminar.LaminarError as error:
                _say(
                    refused=type(error).__name__,
                    message=str(error),
                    writer=getattr(error, "writer", None),
                    since_ms=getattr(error, "since_ms", None),
                    ids=ids,
                    unknown=error.outcome_unknown,
                )
                return 0
            _say(acked=ids)
        _say(stopped=True)
    return 0


def _told_to_stop() -> bool:
    """Whether a line, or the end of the input, is there."""
    ready, _, _ = select.select([sys.stdin], [], [], 0)
    return bool(ready)


def _say(**what: Any) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
