"""Two tasks of a job: the first sends the second BYTES over a plain socket; the second prints how long that took."""

import os
import socket
import sys
import time

PORT = 5555
size, nodes = int(sys.argv[1]), sys.argv[2:]  # nodes: the sender, the receiver

if int(os.environ["SLURM_PROCID"]) == 1:
    with socket.create_server((socket.gethostbyname(nodes[1]), PORT)) as server:
        connection, _ = server.accept()
        begin, received = time.monotonic(), 0
        while chunk := connection.recv(1 << 16):
            received += len(chunk)
        assert received == size
        print(time.monotonic() - begin)
else:
    for _ in range(100):
        try:
            connection = socket.create_connection((nodes[1], PORT))
            break
        except ConnectionRefusedError:
            time.sleep(0.1)
    connection.sendall(bytes(size))
    connection.close()
