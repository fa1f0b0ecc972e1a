"""All parameter servers of the cluster, as one: the flat vector is cut and joined here."""
import json

import numpy as np

import model
import wire


class Parameters:
    def __init__(self, addresses):
        self._addresses = addresses
        self._connections = []

    def connect(self):
        self.close()
        self._connections = [wire.connect(address) for address in self._addresses]

    def close(self):
        for connection in self._connections:
            connection.close()
        self._connections = []

    def pull(self):
        """(step, parameters)"""
        return self._join(wire.PULL, [b""] * len(self._addresses))

    def push(self, update):
        """Subtracts `update`; returns (step, parameters) after it."""
        count = len(self._addresses)
        return self._join(wire.PUSH, [update[model.shard(i, count)].astype("<f4").tobytes() for i in range(count)])

    def wait(self, step):
        """Returns the step reached: at once when it is `step` or more, else after a second at the latest."""
        wire.send(self._connections[0], wire.WAIT, step)
        return wire.receive(self._connections[0])[1]

    def save(self, directory):
        """Lets every server write its shard; returns the manifest entries."""
        for connection in self._connections:
            wire.send(connection, wire.SAVE, 0, directory.encode())
        entries = []
        for connection in self._connections:
            kind, _, payload = wire.receive(connection)
            if kind != wire.SAVED:
                raise OSError("could not write a shard: " + payload.decode(errors="replace"))
            entries.append(json.loads(payload))
        return entries

    def _join(self, kind, payloads):
        for connection, payload in zip(self._connections, payloads):      # all at work at once
            wire.send(connection, kind, 0, payload)
        answers = [wire.receive(connection) for connection in self._connections]
        flat = np.concatenate([np.frombuffer(payload, dtype="<f4") for _, _, payload in answers])
        return answers[0][1], flat                                        # ps 0 counts for all
