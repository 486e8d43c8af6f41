"""Two runs of one writer: the second takes over, and the first is refused where its rows would land."""

import sys
import tempfile

import pyarrow as pa

import laminar

schema = pa.schema([("order_id", pa.int64()), ("amount", pa.float64())])

with tempfile.TemporaryDirectory() as folder, laminar.open(folder + "/data") as db:
    orders = db.create_stream("/shop/orders", partitions=4, schema=schema, key="order_id")
    first = orders.writer("ingest")
    first.append([{"order_id": 1, "amount": 9.5}])

    second = orders.writer("ingest")  # new epochs: whoever had the partitions is fenced
    second.append([{"order_id": 2, "amount": 3.0}])
    try:
        first.append([{"order_id": 3, "amount": 1.0}])
    except laminar.StaleEpochError as error:
        print(f"refused: {error}")
    else:
        sys.exit("the first run was not refused")
    second.close()

    found = sorted(orders.read().read_all()["order_id"].to_pylist())
    print("rows:", found)
    assert found == [1, 2]
