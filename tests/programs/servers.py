"""A program in the style of tf_cnn_benchmarks: servers that never end, workers that push and pull, and print img/s.

python servers.py --ps_hosts=… --worker_hosts=… --job_name=ps|worker --task_index=N     or, without these, TF_CONFIG
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import threading
import time

MESSAGE = bytes(1_000_000)
STEPS = 3


def address(host: str) -> tuple[str, int]:
    name, _, port = host.rpartition(":")
    return name, int(port)


def echo(connection: socket.socket) -> None:
    with connection:
        while received := connection.recv(1 << 16):
            connection.sendall(received)


def serve(host: str) -> None:
    with socket.create_server(address(host)) as server:
        print("serving", flush=True)
        while True:  # as tf.train.Server.join() does
            threading.Thread(target=echo, args=[server.accept()[0]], daemon=True).start()


def connected(host: str) -> socket.socket:
    while True:
        try:
            return socket.create_connection(address(host))
        except ConnectionRefusedError:
            time.sleep(0.1)


def work(hosts: list[str]) -> None:
    began = time.monotonic()
    for server in map(connected, hosts):
        for _ in range(STEPS):
            threading.Thread(target=server.sendall, args=[MESSAGE]).start()
            left = len(MESSAGE)
            while left:
                left -= len(server.recv(1 << 16))
    print(f"total images/sec: {STEPS / (time.monotonic() - began):.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for name in ("--ps_hosts", "--worker_hosts", "--job_name"):
        parser.add_argument(name)
    parser.add_argument("--task_index", type=int)
    given = parser.parse_args()
    if given.job_name:
        ps, role, index = given.ps_hosts.split(","), given.job_name, given.task_index
    else:
        config = json.loads(os.environ["TF_CONFIG"])
        ps, role, index = config["cluster"]["ps"], config["task"]["type"], config["task"]["index"]
    serve(ps[index]) if role == "ps" else work(ps)
