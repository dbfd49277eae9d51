#!/usr/bin/python3
"""Asks the broker of `--bootstrap-server HOST:PORT` which requests it takes, and ends with 0 if it answers."""

import socket
import struct
import sys

API_VERSIONS, VERSION, CORRELATION = 18, 0, 7
host, port = sys.argv[sys.argv.index("--bootstrap-server") + 1].split(":")
request = struct.pack(">hhih", API_VERSIONS, VERSION, CORRELATION, -1)
with socket.create_connection((host, int(port)), timeout=5) as connection:
    connection.sendall(struct.pack(">i", len(request)) + request)
    answer = connection.recv(14, socket.MSG_WAITALL)
_, correlation, error, count = struct.unpack(">iihi", answer)
print(f"{host}:{port} takes {count} kinds of requests")
sys.exit(error or correlation != CORRELATION or count < 1)
