"""Learns to read handwritten digits (scikit-learn's load_digits) by softmax regression; the ranks of mpirun add up their gradients.

Nothing here knows dtrain: `mpirun -np 2 python3 train.py` runs it, too. It takes up from the newest checkpoint that it finds, and the loss
after the last step is the same whether it was interrupted or not.
"""
import argparse
import os
import time

import numpy
from mpi4py import MPI
from sklearn.datasets import load_digits

BATCH = 64          # of all ranks together
RATE = 0.5


def newest(directory):
    """dtrain says which checkpoint is good; without it the newest is taken."""
    given = os.environ.get("DTRAIN_RESTORE_FROM")
    if given:
        return given
    found = sorted(name for name in os.listdir(directory) if name.endswith(".npz"))
    return os.path.join(directory, found[-1]) if found else None


def save(path, **state):
    with open(path + ".tmp", "wb") as file:
        numpy.savez(file, **state)
        file.flush()
        os.fsync(file.fileno())
    os.rename(path + ".tmp", path)


def chances(images, weights):
    scores = images @ weights
    powers = numpy.exp(scores - scores.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--steps", type=int, default=300)
    options.add_argument("--save-every", type=int, default=50)
    options.add_argument("--checkpoints", default=os.environ.get("DTRAIN_CHECKPOINT_DIR", "checkpoints"))
    options.add_argument("--pause", type=float, default=0, help="seconds between steps, so that there is something to watch")
    options = options.parse_args()

    ranks = MPI.COMM_WORLD
    os.makedirs(options.checkpoints, exist_ok=True)
    digits = load_digits()
    images = numpy.hstack([digits.data / 16, numpy.ones((len(digits.data), 1))])
    labels = digits.target
    weights, step = numpy.zeros((images.shape[1], 10)), 0
    path = newest(options.checkpoints)
    if path:
        with numpy.load(path) as state:
            weights, step = state["weights"], int(state["step"])
    print("rank %d of %d begins at step %d" % (ranks.rank, ranks.size, step), flush=True)

    while step < options.steps:
        picked = numpy.random.default_rng(step).integers(len(images), size=BATCH)[ranks.rank::ranks.size]
        wrong = chances(images[picked], weights)
        wrong[numpy.arange(len(picked)), labels[picked]] -= 1
        gradient = images[picked].T @ wrong
        ranks.Allreduce(MPI.IN_PLACE, gradient)
        weights = weights - RATE / BATCH * gradient
        step += 1
        if ranks.rank == 0 and (step % options.save_every == 0 or step == options.steps):
            save(os.path.join(options.checkpoints, "step_%06d.npz" % step), weights=weights, step=step)
        time.sleep(options.pause)
    if ranks.rank == 0:
        all_chances = chances(images, weights)
        loss = -numpy.log(all_chances[numpy.arange(len(labels)), labels]).mean()
        print("loss=%.6f accuracy=%.4f" % (loss, (all_chances.argmax(axis=1) == labels).mean()), flush=True)


if __name__ == "__main__":
    main()
