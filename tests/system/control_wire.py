"""The control protocol by hand (common/wire/control.h): what no dtrainctl would say.

As a program: sends what stdin has to the socket, as one frame, and prints the answer.
"""
import socket
import struct
import sys

# Numbers of messages.
ERROR, SUBMITTED, SUBMIT, ACTION, LOGS, EXEC = 1, 3, 17, 26, 28, 29
HAS_BLOB, PUT_BLOB, GET_BLOB, KEEP_BLOB, ASK_CHECKPOINT, GET_CHECKPOINT = 32, 33, 41, 43, 44, 46
RESTART, CANCEL = 3, 0      # kinds of actions


def packed(value):
    """As msgpack."""
    if isinstance(value, bool):
        return b"\xc3" if value else b"\xc2"
    if isinstance(value, int):
        return b"\xcf" + struct.pack(">Q", value)
    if isinstance(value, str):
        value = value.encode()
        return b"\xdb" + struct.pack(">I", len(value)) + value
    if isinstance(value, bytes):
        return b"\xc6" + struct.pack(">I", len(value)) + value
    if isinstance(value, list):
        return b"\xdd" + struct.pack(">I", len(value)) + b"".join(map(packed, value))
    return b"\xdf" + struct.pack(">I", len(value)) + b"".join(packed(key) + packed(value[key]) for key in value)


def request(type_, **fields):
    return packed({"f": 1, "t": type_, "r": 1, "l": True, "p": packed(fields)})


def unpacked(data, at=0):
    """The value there, and where the next one begins; of what answers have in them."""
    def number(size):
        return int.from_bytes(data[at + 1:at + 1 + size], "big"), at + 1 + size

    def bytes_of(length, begin):
        return data[begin:begin + length], begin + length

    def many(count, begin, pairs):
        values = []
        for _ in range(count * (1 + pairs)):
            value, begin = unpacked(data, begin)
            values.append(value)
        return (dict(zip(values[::2], values[1::2])) if pairs else values), begin
    kind = data[at]
    if kind < 0x80:
        return kind, at + 1
    if kind < 0x90:
        return many(kind & 15, at + 1, True)
    if kind < 0xa0:
        return many(kind & 15, at + 1, False)
    if kind < 0xc0:
        return bytes_of(kind & 31, at + 1)
    if kind in (0xc0, 0xc2, 0xc3):
        return {0xc0: None, 0xc2: False, 0xc3: True}[kind], at + 1
    if 0xcc <= kind <= 0xd3:
        return number(1 << (kind - 0xcc) % 4)
    sizes = {0xc4: 1, 0xc5: 2, 0xc6: 4, 0xd9: 1, 0xda: 2, 0xdb: 4, 0xdc: 2, 0xdd: 4, 0xde: 2, 0xdf: 4}
    length, begin = number(sizes[kind])
    return bytes_of(length, begin) if kind < 0xdc else many(length, begin, kind >= 0xde)


def answer(data):
    """(number of the message, what it says) of one that was received."""
    message = unpacked(data)[0]
    return message[b"t"], unpacked(message[b"p"])[0]


def asked(path, body):
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(30)
        connection.connect(path)
        connection.sendall(struct.pack("<I", len(body)) + body)
        with connection.makefile("rb") as file:
            return file.read(struct.unpack("<I", file.read(4))[0])


if __name__ == "__main__":
    sys.stdout.buffer.write(asked(sys.argv[1], sys.stdin.buffer.read()))
