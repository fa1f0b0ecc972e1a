"""Trains a digit classifier with parameter servers. Which task this is and where the others are comes from TF_CONFIG.

Asynchronous SGD: every worker pulls the parameters, computes a gradient on its own batch and pushes an update, without
waiting for the other workers. The chief looks after checkpoints and the final evaluation and does not train.

Environment: TF_CONFIG; DTRAIN_RESTORE_FROM (a checkpoint to go on from), DTRAIN_CHECKPOINT_DIR (where to write; none:
nothing is written), NOTIFY_SOCKET (where to report).
"""
import argparse
import json
import os
import sys
import time

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")      # tiny matrices: more threads only wait for each other

# Below the line above: numpy reads the variable when it is imported.
import numpy as np                                      # noqa: E402

import checkpoint                                       # noqa: E402
import model                                            # noqa: E402
import report                                           # noqa: E402
import wire                                             # noqa: E402
from client import Parameters                           # noqa: E402

BATCH = 32
LEARNING_RATE = 0.1
REPORT_SECONDS = 0.5


class Cluster:
    """TF_CONFIG, read."""

    def __init__(self, text):
        config = json.loads(text)
        self._tasks = config["cluster"]
        self.role, self.index = config["task"]["type"], int(config["task"]["index"])
        self.size = sum(len(addresses) for addresses in self._tasks.values())

    def addresses(self, role):
        return self._tasks.get(role, [])

    def own_address(self):
        return self.addresses(self.role)[self.index]


def join(parameters):
    """Connects and pulls: (step, parameters). A server that is just dying may still accept, so both are tried again."""
    end = time.monotonic() + wire.CONNECT_SECONDS
    while True:
        parameters.connect()
        try:
            return parameters.pull()
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(wire.CONNECT_PAUSE_MAX)


def run_worker(cluster, arguments, notifier):
    images, labels, _, _ = model.load_data()
    parameters = Parameters(cluster.addresses("ps"))
    step, flat = join(parameters)
    # Another stream of batches per worker and per starting point, the same at every run.
    random = np.random.default_rng((model.SEED, cluster.index, step))
    next_report = 0.0
    while step < arguments.steps:
        began = time.monotonic()
        batch = random.integers(0, len(images), BATCH)
        loss, slope = model.gradient(flat, images[batch], labels[batch])
        try:
            step, flat = parameters.push(LEARNING_RATE * slope)
        except OSError as error:                        # its server is gone; the update may be lost, training goes on
            report.line("connecting again: %s" % error)
            step, flat = join(parameters)
            continue
        now = time.monotonic()
        if now >= next_report:
            report.line("step=%d loss=%.4f" % (step, loss))
            notifier.send(READY=1, STATUS="step %d of %d, loss %.3f" % (step, arguments.steps, loss))
            next_report = now + REPORT_SECONDS
        if arguments.max_rate:
            time.sleep(max(0.0, began + 1 / arguments.max_rate - now))
    report.line("done at step=%d" % step)


def run_chief(cluster, arguments, notifier):
    _, _, images, labels = model.load_data()
    root = os.environ.get("DTRAIN_CHECKPOINT_DIR", "")
    parameters = Parameters(cluster.addresses("ps"))
    step, _ = join(parameters)
    report.line("chief sees step=%d of %d" % (step, arguments.steps))
    notifier.send(READY=1, STATUS="step %d of %d" % (step, arguments.steps))
    while True:
        goal = min(arguments.steps, (step // arguments.checkpoint_every + 1) * arguments.checkpoint_every)
        while step < goal:
            step = parameters.wait(goal)
        if root:
            directory = checkpoint.begin(root, step)
            report.line("saved %s" % checkpoint.commit(directory, step, parameters.save(directory)))
        _, flat = parameters.pull()
        share = model.accuracy(flat, images, labels)
        notifier.send(STATUS="step %d of %d, accuracy %.3f" % (step, arguments.steps, share))
        if step >= arguments.steps:
            break
        report.line("step=%d test_accuracy=%.3f" % (step, share))
    report.write("accuracy=%.3f" % share)


def run_ps(cluster, arguments, notifier):
    from server import ParameterServer
    ParameterServer(cluster, os.environ.get("DTRAIN_RESTORE_FROM", "")).serve_forever(notifier)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=12000, help="updates in all, over all workers")
    parser.add_argument("--checkpoint-every", type=int, default=1000, help="updates between checkpoints")
    parser.add_argument("--max-rate", type=float, default=0, help="updates a second of one worker; 0: as fast as it goes")
    arguments = parser.parse_args()
    cluster = Cluster(os.environ["TF_CONFIG"])
    roles = {"ps": run_ps, "worker": run_worker, "chief": run_chief}
    if cluster.role not in roles:
        parser.error("no part for a task of type %r: expected ps, worker or chief" % cluster.role)
    try:
        roles[cluster.role](cluster, arguments, report.Notifier())
    except ConnectionError as error:            # without the servers there is nothing to do: whoever started it decides
        report.line("lost a parameter server: %s" % error)
        sys.exit(1)


if __name__ == "__main__":
    main()
