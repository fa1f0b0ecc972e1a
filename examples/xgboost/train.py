"""Learns to read handwritten digits (scikit-learn's load_digits) with XGBoost: all ranks grow the same trees, each from its own images.

Nothing here knows dtrain: MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE are the variables of Kubeflow's operator. Rank 0 runs the tracker
of rabit, XGBoost's collective, beside its own share; it also keeps the models, and gives the newest one to the others when all begin again.
"""
import argparse
import os
import time

import numpy
import xgboost
from sklearn.datasets import load_digits
from xgboost import collective
from xgboost.tracker import RabitTracker

HELD_OUT = 297      # the last images of a fixed shuffle, on which nobody trains
PARAMETERS = {"objective": "multi:softprob", "num_class": 10, "tree_method": "hist", "max_depth": 4, "eta": 0.2, "nthread": 1}


def newest(directory):
    found = sorted(name for name in os.listdir(directory) if name.endswith(".json"))
    return os.path.join(directory, found[-1]) if found else None


def save(model, path):
    with open(path + ".new", "wb") as file:
        file.write(model.save_raw("json"))
        file.flush()
        os.fsync(file.fileno())
    os.rename(path + ".new", path)


class AfterEachRound(xgboost.callback.TrainingCallback):
    def __init__(self, options, rank):
        super().__init__()
        self.options, self.rank = options, rank

    def after_iteration(self, model, epoch, evals_log):
        rounds = model.num_boosted_rounds()
        if self.rank == 0 and (rounds % self.options.save_every == 0 or rounds == self.options.rounds):
            save(model, os.path.join(self.options.models, "rounds_%05d.json" % rounds))
        time.sleep(self.options.pause)
        return False


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--rounds", type=int, default=60)
    options.add_argument("--save-every", type=int, default=10)
    options.add_argument("--models", default="models", help="a directory, which rank 0 alone uses")
    options.add_argument("--pause", type=float, default=0, help="seconds between rounds, so that there is something to watch")
    options = options.parse_args()
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])

    tracker = None
    if rank == 0:
        os.makedirs(options.models, exist_ok=True)
        # With task numbers as the order, rabit's ranks are those of the environment.
        tracker = RabitTracker(os.environ["MASTER_ADDR"], ranks, port=int(os.environ["MASTER_PORT"]), sortby="task")
        tracker.start(ranks)
    digits = load_digits()
    order = numpy.random.default_rng(0).permutation(len(digits.data))
    train, held_out = order[:-HELD_OUT][rank::ranks], order[-HELD_OUT:]

    with collective.CommunicatorContext(DMLC_TRACKER_URI=os.environ["MASTER_ADDR"], DMLC_TRACKER_PORT=os.environ["MASTER_PORT"],
                                        DMLC_TASK_ID="%05d" % rank):
        path = newest(options.models) if rank == 0 else None
        kept = b""
        if path:
            with open(path, "rb") as file:
                kept = file.read()
        kept = collective.broadcast(kept, 0)
        model = xgboost.Booster(PARAMETERS, model_file=bytearray(kept)) if kept else None
        begun = model.num_boosted_rounds() if model else 0
        print("rank %d of %d begins at round %d" % (collective.get_rank(), collective.get_world_size(), begun), flush=True)
        data = xgboost.DMatrix(digits.data[train], digits.target[train])
        model = xgboost.train(PARAMETERS, data, options.rounds - begun, xgb_model=model, callbacks=[AfterEachRound(options, rank)])
    chances = model.predict(xgboost.DMatrix(digits.data[held_out]))
    loss = -numpy.log(chances[numpy.arange(HELD_OUT), digits.target[held_out]]).mean()
    print("loss=%.4f accuracy=%.4f" % (loss, (chances.argmax(axis=1) == digits.target[held_out]).mean()), flush=True)
    if tracker is not None:
        tracker.join()


if __name__ == "__main__":
    main()
