"""A folder that is removed, or made anew by others: an old handle never goes on in another cluster."""

from __future__ import annotations

import os
import pickle
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from nodes import Process, wait_until

import laminar
from laminar import InvalidError, UnavailableError

NODE = """
db = laminar.open(folder)
stream = db.create_stream("/numbers", schema=pa.schema({"n": pa.int64()}))
say("node")
wait()
"""
OTHER = "it now belongs to another cluster, id [0-9a-f]{32}, and this handle is of cluster [0-9a-f]{32}; open it anew"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data"


def _replace(node: Process, folder: Path) -> None:
    node.kill()
    node.ended()
    shutil.rmtree(folder)


def _refused_in_a_fork(stream: laminar.Stream) -> bool:
    child = os.fork()
    if child == 0:
        try:
            stream.append([{"n": 2}])
        except InvalidError as error:
            os._exit(0 if "another cluster" in str(error) else 2)
        os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_old_handles_are_refused_by_another_cluster(folder: Path) -> None:
    with Process(NODE, folder) as first:
        assert first.hear() == "node"
        client = laminar.connect(folder, timeout=20)
        stream = client.stream("/numbers")
        stream.append([{"n": 1}])
        pickles = pickle.dumps(stream), pickle.dumps(client)
        writer = stream.writer("ingest")
        writer.append([{"n": 1}])
        _replace(first, folder)
    with Process(NODE, folder) as second:
        assert second.hear() == "node"
        with pytest.raises(InvalidError, match=OTHER):
            stream.append([{"n": 2}])
        with pytest.raises(InvalidError, match=OTHER):
            stream.read()
        with pytest.raises(laminar.LaminarError):
            writer.append([{"n": 2}])
        with pytest.raises(InvalidError, match=OTHER):
            client.create_stream("/others")
        with pytest.raises(InvalidError, match=OTHER):
            pickle.loads(pickles[0]).append([{"n": 2}])
        with pytest.raises(InvalidError, match=OTHER):
            pickle.loads(pickles[1]).streams()
        assert _refused_in_a_fork(stream)
        with laminar.connect(folder) as fresh:
            assert [found.path for found in fresh.streams()] == ["/numbers"]
            assert fresh.stream("/numbers").read().read_all().num_rows == 0
            # Nor was it claimed.
            fresh.stream("/numbers").append([{"n": 3}])


def test_embedded_handle_does_not_take_the_folder_of_another_cluster(folder: Path) -> None:
    with Process(NODE, folder) as first:
        assert first.hear() == "node"
        db = laminar.open(folder)
        stream = db.stream("/numbers")
        stream.append([{"n": 1}])
        _replace(first, folder)
    laminar.open(folder.with_name("new")).close()
    folder.with_name("new").rename(folder)
    with pytest.raises(InvalidError, match=OTHER):
        stream.append([{"n": 2}])
    db.close()
    with laminar.open(folder) as fresh:
        assert fresh.status().node.folder_epoch == 2
        assert fresh.streams() == []


def test_folder_that_is_gone_is_not_made_anew(folder: Path) -> None:
    db = laminar.open(folder, timeout=1.0)
    stream = db.create_stream("/numbers", schema=pa.schema({"n": pa.int64()}))
    stream.append([{"n": 1}])
    copy = pickle.dumps(stream)
    shutil.rmtree(folder)

    def is_told() -> bool:
        try:
            stream.append([{"n": 2}])
        except UnavailableError as error:
            return "the folder is gone" in str(error)
        return False

    wait_until("the handle says that the folder is gone", is_told)
    assert not folder.exists()
    with pytest.raises(UnavailableError, match="the folder is gone"):
        pickle.loads(copy).append([{"n": 2}])
    db.close()
    assert not folder.exists()


def test_folder_that_was_moved_is_opened_where_it_is_now(folder: Path) -> None:
    landed, unknown = 0, 0

    def is_told() -> bool:
        nonlocal landed, unknown
        try:
            stream.append([{"n": 1}])
        except UnavailableError as error:
            unknown += error.outcome_unknown
            return "the folder is gone" in str(error)
        # The node has not looked yet; its files are where the folder is now.
        landed += 1
        return False

    with laminar.open(folder, timeout=1.0) as old:
        stream = old.create_stream("/numbers", schema=pa.schema({"n": pa.int64()}))
        moved = folder.rename(folder.with_name("moved"))
        wait_until("the handle says that the folder is gone", is_told)
        with laminar.open(moved, timeout=30.0) as db:
            # One that was on its way when the node looked may have landed, and its error says so.
            assert landed <= db.stream("/numbers").read().read_all().num_rows <= landed + unknown
    assert not folder.exists()
