"""A parameter server: holds one shard of the parameters and applies the updates in the order in which they come."""
import json
import socket
import threading

import numpy as np

import checkpoint
import model
import report
import wire

LONGEST_WAIT = 1.0          # seconds a WAIT is held back before it is answered with the step reached so far


class ParameterServer:
    def __init__(self, cluster, restore_from):
        self._index, self._count = cluster.index, len(cluster.addresses("ps"))
        self._own = model.shard(self._index, self._count)
        self._step = 0
        flat = model.initial_parameters()
        if restore_from:
            self._step, flat = checkpoint.load(restore_from)
            report.line("restored step=%d from %s" % (self._step, restore_from))
        self._values = flat[self._own].copy()
        self._changed = threading.Condition()
        self._slots = threading.BoundedSemaphore(4 * cluster.size)     # connections at a time
        self._listener = socket.create_server(wire.split_address(cluster.own_address()), backlog=128)

    def serve_forever(self, notifier):
        report.line("serving %d of %d parameters at step=%d" % (len(self._values), model.SIZE, self._step))
        notifier.send(READY=1, STATUS="step %d" % self._step)
        while True:
            connection, _ = self._listener.accept()
            if not self._slots.acquire(blocking=False):
                connection.close()
                continue
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        try:
            with connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                while True:
                    self._answer(connection, *wire.receive(connection))
        except OSError:
            pass                                        # the client is gone; it connects again if it wants
        finally:
            self._slots.release()

    def _answer(self, connection, kind, step, payload):
        if kind == wire.PUSH:
            update = np.frombuffer(payload, dtype="<f4")
            if len(update) != len(self._values):
                raise wire.ProtocolError("an update of %d values for %d" % (len(update), len(self._values)))
            with self._changed:
                self._values -= update
                self._step += 1
                self._changed.notify_all()
        elif kind == wire.WAIT:
            with self._changed:
                self._changed.wait_for(lambda: self._step >= step, LONGEST_WAIT)
                reached = self._step
            wire.send(connection, wire.STATE, reached)
            return
        elif kind == wire.SAVE:
            self._save(connection, payload.decode())
            return
        elif kind != wire.PULL:
            raise wire.ProtocolError("unknown request %d" % kind)
        with self._changed:
            reached, values = self._step, self._values.tobytes()
        wire.send(connection, wire.STATE, reached, values)

    def _save(self, connection, directory):
        with self._changed:
            reached, values = self._step, self._values.copy()
        try:
            entry = checkpoint.write_shard(directory, self._index, self._count, values)
        except OSError as error:
            wire.send(connection, wire.FAILED, reached, str(error).encode())
            return
        wire.send(connection, wire.SAVED, reached, json.dumps(entry).encode())
