"""What a task says: lines with a time on stdout, and sd_notify datagrams to whoever supervises it."""
import os
import socket
import sys
import time


def line(text):
    now = time.time()
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now))
    write("%s.%03dZ %s" % (stamp, int(now * 1000) % 1000, text))


def write(text):
    sys.stdout.write(text + "\n")       # one write: lines of several tasks on one terminal stay whole
    sys.stdout.flush()


class Notifier:
    """The sd_notify protocol: one datagram of KEY=VALUE lines. Without NOTIFY_SOCKET nothing is sent."""

    def __init__(self):
        self._address = os.environ.get("NOTIFY_SOCKET", "")
        if self._address.startswith("@"):               # the abstract name space
            self._address = "\0" + self._address[1:]
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) if self._address else None

    def send(self, **values):
        if self._socket is None:
            return
        message = "\n".join("%s=%s" % item for item in values.items())
        try:
            self._socket.sendto(message.encode(), socket.MSG_DONTWAIT, self._address)
        except OSError:
            pass                                        # a status line lost is no reason to stop training
