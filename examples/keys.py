"""The newest row of each key, read back linearizably: every acknowledged append is seen."""

import tempfile

import pyarrow as pa

import laminar

schema = pa.schema([("user", pa.string()), ("visits", pa.int64())])

with tempfile.TemporaryDirectory() as folder, laminar.open(folder + "/data") as db:
    users = db.create_stream("/users", partitions=2, schema=schema, key="user", machine="kv")
    users.append([{"user": "ada", "visits": 1}, {"user": "bob", "visits": 5}])
    users.append([{"user": "ada", "visits": 2}])
    print(users.get("ada"))
    assert users.get("ada") == {"user": "ada", "visits": 2}
    assert users.scan().num_rows == 2
