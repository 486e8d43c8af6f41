"""Exactly once: a batch that is committed again, after a crash or a lost answer, lands once."""

import tempfile

import pyarrow as pa

import laminar

schema = pa.schema([("id", pa.int64()), ("text", pa.string())])

with tempfile.TemporaryDirectory() as folder, laminar.open(folder + "/data") as db:
    events = db.create_stream("/events", partitions=3, schema=schema, key="id")
    with events.writer("nightly") as writer:
        for attempt in ("first", "again"):
            with writer.batch(query="load", batch=1) as batch:
                batch.append(pa.table({"id": list(range(1000)), "text": ["x"] * 1000}, schema=schema))
            print(f"{attempt}: {'it had landed' if batch.duplicate else 'landed'}")
    barrier = events.barrier()
    assert events.read(at=barrier).read_all().num_rows == 1000
