"""A real HDFS cluster, NameNode and DataNodes in one JVM, whose NameNode is behind a proxy that can fail."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyspark
from runtime.tests.storage.emulators import MINICLUSTER, free_port, required, running

_START_S = 120.0


@dataclass(slots=True)
class TcpProxy:
    """Forwards connections to a port. Each fault is for one request: the first bytes that a client sends after it was set.

    ``refuse`` closes new connections, ``never`` drops the request with its connection, ``lost`` drops the connection instead of the answer, and ``silent``
    keeps the connection but forwards nothing.
    """

    port: int
    refuse: bool = False
    silent: bool = False
    faults: list[str] = field(default_factory=list)
    seen: bytearray = field(default_factory=bytearray)
    """What clients have sent."""
    matches: bytes = b""
    """A request takes a fault only if it contains this, such as the name of a method."""
    server: socket.socket = field(init=False)
    connections: list[socket.socket] = field(default_factory=list)
    threads: list[threading.Thread] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Listen."""
        self.server = socket.create_server(("127.0.0.1", 0), backlog=128)
        threading.Thread(target=self._serve, daemon=True).start()

    @property
    def authority(self) -> str:
        """``host:port`` of this proxy."""
        return f"127.0.0.1:{self.server.getsockname()[1]}"

    def reset(self) -> None:
        """No faults."""
        self.refuse, self.silent, self.matches = False, False, b""
        self.faults.clear()
        self.seen.clear()

    def close(self) -> None:
        """End all connections, and with them calls that wait for an answer."""
        self.server.close()
        for each in self.connections:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for thread in self.threads:
            thread.join(10)

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self.server.accept()
            except OSError:
                return
            if self.refuse:
                client.close()
                continue
            try:
                upstream = socket.create_connection(("127.0.0.1", self.port))
            except OSError:
                client.close()
                continue
            self.connections += [client, upstream]
            lost = threading.Event()
            for target, given in ((self._up, (client, upstream, lost)), (self._down, (upstream, client, lost))):
                thread = threading.Thread(target=target, args=given, daemon=True)
                self.threads.append(thread)
                thread.start()

    def _up(self, client: socket.socket, upstream: socket.socket, lost: threading.Event) -> None:
        with client, upstream, contextlib.suppress(OSError):
            while data := client.recv(1 << 16):
                self.seen += data
                if self.silent:
                    continue
                if self.refuse:
                    break
                if self.faults and self.matches in data:
                    if self.faults.pop(0) == "never":
                        break
                    lost.set()
                upstream.sendall(data)
            if not lost.is_set():
                upstream.shutdown(socket.SHUT_RDWR)

    def _down(self, upstream: socket.socket, client: socket.socket, lost: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := upstream.recv(1 << 16):
                if lost.is_set():
                    break
                client.sendall(data)
            client.shutdown(socket.SHUT_RDWR)


@dataclass(frozen=True, slots=True)
class HdfsCluster:
    """A running cluster."""

    proxy: TcpProxy
    port: int
    """Of the NameNode itself."""
    data: Path
    """With the DataNodes' blocks somewhere below."""


@contextmanager
def hdfs_cluster(folder: Path) -> Iterator[HdfsCluster]:
    """Run a NameNode and a DataNode."""
    jar = required(MINICLUSTER)
    jars = Path(str(pyspark.__file__)).parent / "jars"
    classpath = [
        str(jar),
        *(
            str(each)
            for name in ("hadoop-client-*", "slf4j-*", "log4j-*", "jcl-*", "commons-logging*")
            for each in jars.glob(f"{name}.jar")
        ),
    ]
    port, http = free_port(), free_port()
    command = ["java", "-Xmx512m", "-cp", ":".join(classpath), "org.apache.hadoop.test.MiniDFSClusterManager"]
    command += ["-nnport", str(port), "-httpport", str(http), "-datanodes", "1", "-format", "-D", f"hdfs.minidfs.basedir={folder / 'hdfs'}"]
    details = folder / "details.json"
    command += ["-writeDetails", str(details)]
    proxy = TcpProxy(port)
    try:
        with running(command, f"http://127.0.0.1:{http}/", folder / "hdfs.log"):
            deadline_s = time.monotonic() + _START_S
            while not details.exists():  # written once the DataNode has reported itself
                assert time.monotonic() < deadline_s, (folder / "hdfs.log").read_text()[-2000:]
                time.sleep(0.1)
            yield HdfsCluster(proxy, port, folder / "hdfs")
    finally:
        proxy.close()
