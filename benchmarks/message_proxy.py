"""What the message proxy costs: requests through it, beside the same requests straight to the server, in the same minute.

    python benchmarks/message_proxy.py [--requests 50000]

The server answers each request with its correlation id. CPU is the proxy's own, from /proc. The ratio to the straight way
is what counts: machines differ.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

from prozess.harness.config.messages import schemas
from prozess.harness.config.messages.facts import BATCH_HEAD

SHAPES = (
    ("1 MiB, 4 in flight", 1 << 20, 4, 100),
    ("100 bytes, 256 in flight", 100, 256, 1),
    ("100 bytes, one at a time", 100, 1, 10),
)
"""(name, bytes of a batch, requests in flight, by which the number of requests is divided)"""
SERVER = """
import socket, struct
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
while True:
    connection, _ = listener.accept()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    kept = bytearray()
    while data := connection.recv(1 << 20):
        kept += data
        at, answers = 0, []
        while len(kept) - at >= 4 and len(kept) - at >= (size := struct.unpack_from(">i", kept, at)[0] + 4):
            answers.append(struct.pack(">i", 4) + kept[at + 8 : at + 12])
            at += size
        del kept[:at]
        if answers:
            connection.sendall(b"".join(answers))
"""


def request(size: int) -> bytes:
    """A Produce request with one batch."""
    batch = BATCH_HEAD.pack(0, BATCH_HEAD.size - 12 + size, 0, 2, 0, 0, 0, 0, 0, 7, 0, 0, 1) + bytes(size)
    partition = {"index": 0, "records": batch}
    body = {
        "transactional_id": None,
        "acks": -1,
        "timeout": 1,
        "topic_data": [{"name": "t", "partition_data": [partition]}],
    }
    return schemas.request(0, 9, 1, "producer", body)


def drive(address: tuple[str, int], message: bytes, count: int, window: int) -> float:
    """Sends requests, as many in flight as that, and returns the seconds until all are answered."""
    with socket.create_connection(address) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        begun, sent, got = time.perf_counter(), 0, 0
        at_once = 64 if len(message) < 10_000 else 1
        while got < count:
            if (more := min(window - (sent - got), count - sent, at_once)) > 0:
                connection.sendall(message * more)
                sent += more
            if sent - got >= window or sent == count:
                got += len(connection.recv(1 << 16)) // 8
        return time.perf_counter() - begun


def cpu_s(pid: int) -> float:
    """The CPU seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Proxy:
    """A proxy process in front of a port of this machine."""

    def __init__(self, port: int) -> None:
        ours, theirs = socket.socketpair()
        self.control = ours.makefile("rwb")
        with socket.create_server(("127.0.0.1", 0)) as listener, theirs:
            self.address = listener.getsockname()
            values = {"fd": listener.fileno(), "opener": "clients", "server": "broker-1", "host": "127.0.0.1"}
            command = [sys.executable, "-m", "prozess.clusters.messages.proxy", str(theirs.fileno())]
            self.process = subprocess.Popen(
                [*command, json.dumps([{**values, "port": port, "network": None}])],
                pass_fds=[listener.fileno(), theirs.fileno()],
            )

    def ask(self, **command: object) -> object:
        """Gives it a command."""
        self.control.write(json.dumps({"id": 1, **command}).encode() + b"\n")
        self.control.flush()
        return json.loads(self.control.readline())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=50_000)
    asked = parser.parse_args()
    server = subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    port = int(server.stdout.readline())
    proxy = Proxy(port)
    try:
        for reads in (False, True):
            if reads:  # a match that reads every body and means none
                wanted = {"apis": [0], "answer": False, "first_sequence": 999}
                proxy.ask(do="arm", rule="r", wanted=wanted, action={"do": "record"}, link=["clients", "broker-1"])
            for name, size, window, fewer in SHAPES:
                message, count = request(size), asked.requests // fewer
                straight_s = drive(("127.0.0.1", port), message, count, window)
                before_s = cpu_s(proxy.process.pid)
                took_s = drive(proxy.address, message, count, window)
                used_s = max(cpu_s(proxy.process.pid) - before_s, 0.01)
                print(
                    f"{'bodies are read' if reads else 'nothing is asked for'}, {name}: {count} requests, "
                    f"{took_s / straight_s:.1f} times as long as without it ({took_s:.2f} s); "
                    f"{used_s / count * 1e6:.1f} µs of CPU a request; "
                    f"{count * len(message) / used_s / 1e6:.0f} MB and "
                    f"{count / used_s:.0f} requests a CPU second, {(took_s - straight_s) / count * 1e6:.0f} µs more a request"
                )
    finally:
        server.kill()
        proxy.process.kill()


if __name__ == "__main__":
    main()
