"""Messages between the tasks: a header of 16 bytes, then a payload of bounded size, over one TCP connection.

A request has exactly one reply. `step` is the number of updates: the one asked for, or the one reached.
"""
import socket
import struct
import time

HEADER = struct.Struct("<IB3xQ")        # payload bytes, kind, step
MAX_PAYLOAD = 16 << 20                  # a longer announced payload is refused before it is read

PULL, PUSH, WAIT, SAVE = 1, 2, 3, 4     # requests
STATE, SAVED, FAILED = 16, 17, 18       # replies

CONNECT_SECONDS = 60                    # how long a peer may take to come up
CONNECT_PAUSE = 0.005                   # between two attempts; doubled each time up to the next
CONNECT_PAUSE_MAX = 0.1
ANSWER_SECONDS = 30                     # a peer silent for longer is taken for gone


class ProtocolError(OSError):
    """The other end sent what this version cannot read."""


def send(connection, kind, step=0, payload=b""):
    connection.sendall(HEADER.pack(len(payload), kind, step) + payload)


def receive(connection):
    length, kind, step = HEADER.unpack(_read(connection, HEADER.size))
    if length > MAX_PAYLOAD:
        raise ProtocolError("a message of %d bytes was announced; the limit is %d" % (length, MAX_PAYLOAD))
    return kind, step, _read(connection, length)


def connect(address, seconds=CONNECT_SECONDS):
    """Connects to "host:port", patiently: peers start in any order."""
    host, port = split_address(address)
    end = time.monotonic() + seconds
    pause = CONNECT_PAUSE
    while True:
        try:
            connection = socket.create_connection((host, port), timeout=ANSWER_SECONDS)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return connection
        except OSError as error:
            if time.monotonic() + pause > end:
                raise ConnectionError("could not connect to %s within %d s: %s" % (address, seconds, error)) from error
        time.sleep(pause)
        pause = min(2 * pause, CONNECT_PAUSE_MAX)


def split_address(address):
    host, port = address.rsplit(":", 1)
    return host, int(port)


def _read(connection, length):
    buffer = bytearray(length)
    view = memoryview(buffer)
    got = 0
    while got < length:
        count = connection.recv_into(view[got:])
        if count == 0:
            raise ConnectionError("the peer closed the connection")
        got += count
    return bytes(buffer)
