"""Learns to read handwritten digits (scikit-learn's load_digits) with a parameter server over torch.distributed.rpc, on CPUs.

Nothing here knows dtrain but for the checkpoint that it names: `torchrun --nproc-per-node 3 train.py` runs it, too. Rank 0 is the server.
"""
import argparse
import os
import threading

import torch
import torch.distributed.rpc as rpc
from sklearn.datasets import load_digits

BATCH = 64
SERVER = "ps"


def digits():
    found = load_digits()
    return torch.tensor(found.data / 16, dtype=torch.float32), torch.tensor(found.target)


def new_model():
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))


class Server:
    """Has the parameters. Its functions run in threads of rpc's, several at once."""

    def __init__(self, options):
        self.options, self.lock = options, threading.Lock()
        self.model, self.step = new_model(), 0
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9)
        path = os.environ.get("DTRAIN_RESTORE_FROM")
        if path:
            state = torch.load(path)
            self.model.load_state_dict(state["model"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.step = state["step"]
        print("server begins at step %d" % self.step, flush=True)

    def parameters(self):
        return [each.detach().clone() for each in self.model.parameters()]

    def exchange(self, gradients):
        """Applies gradients, if there are any; the step that it is at, and the parameters. No parameters: it has all its steps."""
        with self.lock:
            if gradients is not None and self.step < self.options.steps:
                for parameter, gradient in zip(self.model.parameters(), gradients):
                    parameter.grad = gradient
                self.optimizer.step()
                self.step += 1
                if self.step % self.options.save_every == 0 or self.step == self.options.steps:
                    self.save()
            return self.step, self.parameters() if self.step < self.options.steps else None

    def save(self):
        os.makedirs(self.options.checkpoints, exist_ok=True)
        path = os.path.join(self.options.checkpoints, "step_%06d.pt" % self.step)
        with open(path + ".tmp", "wb") as file:
            torch.save({"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(), "step": self.step}, file)
            file.flush()
            os.fsync(file.fileno())
        os.rename(path + ".tmp", path)

    def accuracy(self):
        images, labels = digits()
        with torch.no_grad():
            return (self.model(images).argmax(1) == labels).float().mean()


server = None


def exchange(gradients):
    """What trainers call; it runs in the server's process."""
    return server.exchange(gradients)


def train(rank):
    images, labels = digits()
    model, draw, sent = new_model(), torch.Generator().manual_seed(rank), 0
    step, parameters = rpc.rpc_sync(SERVER, exchange, (None,))
    while parameters is not None:
        for mine, newest in zip(model.parameters(), parameters):
            mine.data.copy_(newest)
        picked = torch.randint(len(images), (BATCH,), generator=draw)
        loss = torch.nn.functional.cross_entropy(model(images[picked]), labels[picked])
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        step, parameters = rpc.rpc_sync(SERVER, exchange, (gradients,))
        sent += 1
    print("rank %d sent %d gradients" % (rank, sent), flush=True)


def main():
    global server
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--save-every", type=int, default=50)
    parser.add_argument("--checkpoints", default=os.environ.get("DTRAIN_CHECKPOINT_DIR", "checkpoints"))
    options = parser.parse_args()
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(1)
    if rank == 0:
        server = Server(options)
    rpc.init_rpc(SERVER if rank == 0 else "trainer%d" % rank, rank=rank, world_size=world)
    if rank != 0:
        train(rank)
    rpc.shutdown()      # waits for all
    if rank == 0:
        print("steps=%d accuracy=%.4f" % (server.step, server.accuracy()), flush=True)


if __name__ == "__main__":
    main()
