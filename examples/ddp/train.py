"""Learns to read handwritten digits (scikit-learn's load_digits) with DistributedDataParallel over gloo, on CPUs.

Nothing here knows dtrain: `torchrun --nproc-per-node 4 train.py` runs it, too. It takes up from the newest checkpoint that it finds, and
the loss after the last step is the same whether it was interrupted or not.
"""
import argparse
import os
import time

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch.nn.parallel import DistributedDataParallel

BATCH = 64          # of all ranks together


def newest(directory):
    """dtrain says which checkpoint is good; without it the newest is taken."""
    given = os.environ.get("DTRAIN_RESTORE_FROM")
    if given:
        return given
    found = sorted(name for name in os.listdir(directory) if name.endswith(".pt"))
    return os.path.join(directory, found[-1]) if found else None


def save(path, state):
    with open(path + ".tmp", "wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    os.rename(path + ".tmp", path)


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--steps", type=int, default=400)
    options.add_argument("--save-every", type=int, default=50)
    options.add_argument("--checkpoints", default=os.environ.get("DTRAIN_CHECKPOINT_DIR", "checkpoints"))
    options.add_argument("--pause", type=float, default=0, help="seconds between steps, so that there is something to watch")
    options = options.parse_args()

    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    os.makedirs(options.checkpoints, exist_ok=True)

    digits = load_digits()
    images = torch.tensor(digits.data / 16, dtype=torch.float32)
    labels = torch.tensor(digits.target)
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
    ddp = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1, momentum=0.9)
    step = 0
    path = newest(options.checkpoints)
    if path:
        state = torch.load(path)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        step = state["step"]
    print("rank %d of %d begins at step %d" % (rank, world, step), flush=True)

    loss = torch.zeros(())
    while step < options.steps:
        picked = torch.randint(len(images), (BATCH,), generator=torch.Generator().manual_seed(step))[rank::world]
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(ddp(images[picked]), labels[picked])
        loss.backward()
        optimizer.step()
        step += 1
        if rank == 0 and (step % options.save_every == 0 or step == options.steps):
            save(os.path.join(options.checkpoints, "step_%06d.pt" % step),
                 {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step})
        print("rank=%d step=%d" % (rank, step), flush=True)
        time.sleep(options.pause)
    with torch.no_grad():
        whole = torch.nn.functional.cross_entropy(model(images), labels)
        right = (model(images).argmax(1) == labels).float().mean()
    print("loss=%.6f accuracy=%.4f" % (whole, right), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
