"""A state machine of your own: what the rows of a partition come to, kept by the node beside them."""

from __future__ import annotations

import json
import tempfile
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc

import laminar


class Totals:
    """The sum of all amounts of a partition."""

    made: ClassVar[list[Totals]] = []  # looked at from outside, for this example only

    def __init__(self) -> None:
        self.total = 0.0
        Totals.made.append(self)

    def apply(self, batch: pa.RecordBatch) -> None:
        """Take a batch over, whole or not at all."""
        self.total += pc.sum(batch["amount"]).as_py()

    def snapshot(self) -> bytes:
        """The state as bytes; equal states give equal bytes."""
        return json.dumps(self.total).encode()

    def restore(self, state: bytes) -> None:
        """Take over what ``snapshot`` gave."""
        self.total = json.loads(state)


schema = pa.schema([("id", pa.int64()), ("amount", pa.float64())])

with tempfile.TemporaryDirectory() as folder, laminar.open(folder + "/data", machines={"totals": Totals}) as db:
    sales = db.create_stream("/sales", partitions=2, schema=schema, key="id", machine="totals")
    sales.append([{"id": number, "amount": 1.5} for number in range(10)])
    sales.barrier()
    total = sum(machine.total for machine in Totals.made)
    print(total)
    assert total == 15.0
