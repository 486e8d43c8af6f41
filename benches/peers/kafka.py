"""Apache Kafka as one broker, measured with its own Java clients.

The jars come by Maven coordinates into the user's cache folder, once. The broker runs on free loopback ports with a
temporary folder, and is gone with its folder when the ``with`` block ends.
"""

# ruff: noqa: S603, S607 - the commands are those of this file, found where the user has them

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

VERSION = "4.3.1"
ARTIFACTS = ("kafka_2.13", "kafka-tools")
PROGRAM = Path(__file__).with_name("KafkaBench.java")
START_TIMEOUT_SECONDS = 60.0
ANSWER_TIMEOUT_SECONDS = 300.0

SERVER_PROPERTIES = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{broker}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={folder}/data
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
"""


class KafkaMissingError(Exception):
    """Kafka cannot be had here; the message says why."""


def cache_folder() -> Path:
    """Where jars are kept from one run to the next."""
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(home) / "laminar-bench" / f"kafka-{VERSION}"


def jars() -> Path:
    """The folder of Kafka's jars; gets them if they are not there."""
    for tool in ("java", "javac", "mvn"):
        if shutil.which(tool) is None:
            raise KafkaMissingError(f"Kafka is left out: there is no {tool}")
    folder = cache_folder()
    ready = folder / "libs.ready"
    if ready.exists():
        return folder / "libs"
    folder.mkdir(parents=True, exist_ok=True)
    dependencies = "".join(
        f"<dependency><groupId>org.apache.kafka</groupId><artifactId>{name}</artifactId><version>{VERSION}</version></dependency>"
        for name in ARTIFACTS
    )
    (folder / "pom.xml").write_text(
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>laminar</groupId><artifactId>bench</artifactId><version>1</version>"
        f"<dependencies>{dependencies}</dependencies></project>"
    )
    got = subprocess.run(
        ["mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={folder / 'libs'}"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    if got.returncode != 0:
        raise KafkaMissingError(f"Kafka is left out: Maven failed: {(got.stdout + got.stderr).strip()[-300:]}")
    ready.touch()
    return folder / "libs"


def compiled(libs: Path) -> Path:
    """The folder of the compiled client program."""
    classes = cache_folder() / "classes"
    made = classes / "KafkaBench.class"
    if not made.exists() or made.stat().st_mtime < PROGRAM.stat().st_mtime:
        classes.mkdir(exist_ok=True)
        done = subprocess.run(
            ["javac", "-cp", f"{libs}/*", "-d", str(classes), str(PROGRAM)], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise KafkaMissingError(f"Kafka is left out: javac failed: {done.stderr.strip()[-300:]}")
    return classes


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


class Broker:
    """A running broker with its client program. Made by ``broker``."""

    def __init__(self, client: subprocess.Popen[str], address: str) -> None:
        self._client = client
        self.address = address

    def ask(self, verb: str, **given: Any) -> dict[str, Any]:
        """Run one command of the client program and return its answer."""
        if self._client.stdin is None or self._client.stdout is None:
            raise KafkaMissingError("Kafka's client has no pipes")
        words = " ".join([verb, *(f"{name}={value}" for name, value in given.items())])
        self._client.stdin.write(words + "\n")
        self._client.stdin.flush()
        # A producer that wedges must not hang the benches.
        alarm = threading.Timer(ANSWER_TIMEOUT_SECONDS, self._client.kill)
        alarm.daemon = True
        alarm.start()
        try:
            line = self._client.stdout.readline()
        finally:
            alarm.cancel()
        if not line:
            raise KafkaMissingError(f"Kafka's client ended, or took over {ANSWER_TIMEOUT_SECONDS:.0f} s, at {words!r}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise KafkaMissingError(f"Kafka's client failed at {words!r}: {answer['error']}")
        return answer

    def create(self, partitions: int, *, fsync: bool) -> str:
        """A new topic that acknowledges in every partition."""
        topic = f"bench-{uuid.uuid4().hex[:12]}"
        self.ask("create", topic=topic, partitions=partitions, fsync=int(fsync))
        return topic


def _wait_for_port(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_TIMEOUT_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise KafkaMissingError(f"Kafka is left out: the broker ended with {process.returncode}")
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise KafkaMissingError(f"Kafka is left out: no broker after {START_TIMEOUT_SECONDS:.0f} s")


@contextmanager
def broker(under: Path) -> Iterator[Broker]:
    """Run a broker with its folder under ``under``, and a client program connected to it."""
    libs = jars()
    classes = compiled(libs)
    folder = Path(tempfile.mkdtemp(prefix="kafka-", dir=under))
    processes: list[subprocess.Popen[Any]] = []
    try:
        broker_port, controller_port = _free_ports(2)
        properties = folder / "server.properties"
        properties.write_text(SERVER_PROPERTIES.format(broker=broker_port, controller=controller_port, folder=folder))
        java = ["java", "-cp", f"{libs}/*"]
        cluster = ["-t", "laminarbenchlaminarbe", "-c", str(properties), "--ignore-formatted"]
        formatted = subprocess.run(
            [*java, "kafka.tools.StorageTool", "format", *cluster], capture_output=True, text=True, check=False
        )
        if formatted.returncode != 0:
            raise KafkaMissingError(f"Kafka is left out: format failed: {formatted.stderr.strip()[-300:]}")
        with (folder / "broker.log").open("wb") as log:
            server = subprocess.Popen(
                ["java", "-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-cp", f"{libs}/*", "kafka.Kafka", str(properties)],
                stdout=log,
                stderr=log,
            )
        processes.append(server)
        _wait_for_port(broker_port, server)
        address = f"127.0.0.1:{broker_port}"
        client = subprocess.Popen(
            ["java", "-Xms1g", "-Xmx2g", "-cp", f"{classes}:{libs}/*", "KafkaBench", address],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        processes.append(client)
        yield Broker(client, address)
    finally:
        for process in reversed(processes):
            process.kill()
            process.wait()
        shutil.rmtree(folder, ignore_errors=True)
