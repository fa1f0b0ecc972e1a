"""Checkpoints that their real writers wrote (Debian's PyTorch, NumPy, h5py and XGBoost): a good one is never refused, whatever its
shape, and one that is cut at any block always. DeepSpeed and Megatron are not in Debian: their files are what their code saves through
torch.save. (The writer of distributed checkpoints in PyTorch 1.13 cannot be imported by Python 3.11.)"""
import argparse
import os
import random
import shutil
import subprocess
import tempfile
import unittest

import h5py
import numpy
import torch
import xgboost

import harness

SHAPES = 30         # of each writer
BLOCK = 512         # a file is cut at each


def array(rng):
    return numpy.random.default_rng(rng.randrange(1 << 30)).normal(size=[rng.randrange(40) for _ in range(rng.randrange(1, 4))])


def write_torch(path, rng):
    state = {"w%d" % i: torch.from_numpy(array(rng)).to(rng.choice((torch.float32, torch.float16, torch.bfloat16, torch.int64)))
             for i in range(rng.randrange(1, 9))}
    torch.save(rng.choice((state, {"model": state, "step": 5}, [state, torch.nn.Linear(4, 4)])), path)


def write_numpy(path, rng):
    rng.choice((numpy.savez, numpy.savez_compressed))(path, **{"a%d" % i: array(rng) for i in range(rng.randrange(1, 9))})


def write_hdf5(path, rng):
    version, before = rng.choice(("earliest", "latest", "v108", "v110")), rng.choice((0, 0, 512, 4096))
    with h5py.File(path, "w", libver=version, userblock_size=before) as file:
        file.attrs["keras_version"] = "2.11.0"
        for i in range(rng.randrange(0, 9)):
            options = rng.choice(({}, {"compression": "gzip"}, {"fletcher32": True}, {"chunks": True}))
            data = array(rng)
            file.create_dataset("layers/l%d/w" % i, data=data, **(options if data.size else {}))


def write_xgboost(path, rng):
    maker = numpy.random.default_rng(rng.randrange(1 << 30))
    features, rows = rng.randrange(1, 8), rng.randrange(8, 60)
    data = xgboost.DMatrix(maker.normal(size=(rows, features)), label=maker.integers(0, 2, rows),
                           feature_names=rng.choice((None, ["näme \"%d\"" % i for i in range(features)])))
    settings = {"max_depth": rng.randrange(1, 6), "booster": rng.choice(("gbtree", "gblinear", "dart")), "nthread": 1, "verbosity": 0,
                "objective": rng.choice(("binary:logistic", "reg:squarederror", "count:poisson"))}
    xgboost.train(settings, data, num_boost_round=rng.randrange(1, 12)).save_model(path)


def write_deepspeed(path, rng):
    data, model, stage = rng.randrange(1, 5), rng.randrange(1, 4), rng.randrange(0, 4)
    os.mkdir(path)
    for m in range(model):
        for d in range(data):
            states = {"module": {"w": torch.zeros(9)}, "optimizer": None, "global_steps": 5, "dp_world_size": data, "mp_world_size": model,
                      "ds_config": {"train_batch_size": 8, "zero_optimization": {"stage": stage}}, "ds_version": "0.14"}
            share = "zero_pp_rank_%d_mp_rank_%02d" % (d, m)
            if stage == 3 or d == 0:
                torch.save(states, os.path.join(path, "%s_model_states.pt" % (share if stage == 3 else "mp_rank_%02d" % m)))
            if stage > 0:
                torch.save({"optimizer_state_dict": {"zero_stage": stage}}, os.path.join(path, "bf16_%s_optim_states.pt" % share))


def write_megatron(path, rng):
    tensor, pipeline = rng.randrange(1, 5), rng.randrange(1, 4)
    args = argparse.Namespace(lr=1e-4, tensor_model_parallel_size=tensor, pipeline_model_parallel_size=pipeline, iteration=5)
    for t in range(tensor):
        for p in range(pipeline):
            rank = os.path.join(path, "mp_rank_%02d" % t + ("_%03d" % p if pipeline > 1 else ""))
            os.makedirs(rank)
            torch.save({"args": args, "checkpoint_version": 3.0, "model": {"w": torch.ones(5)}}, os.path.join(rank, "model_optim_rng.pt"))


FILES = {"ckpt_5.pt": write_torch, "ckpt_5.npz": write_numpy, "ckpt_5.h5": write_hdf5,
         "model_5.json": write_xgboost, "model_5.ubj": write_xgboost}
DIRECTORIES = {"global_step5": write_deepspeed, "iter_0000005": write_megatron}


class Writers(unittest.TestCase):
    def setUp(self):
        self.top = tempfile.mkdtemp(prefix="dtrain-writers-")
        self.addCleanup(shutil.rmtree, self.top)
        self.rng = random.Random(34)

    def verify(self, path):
        return subprocess.run([os.path.join(harness.BIN, "dtrainctl"), "verify", path], capture_output=True, text=True)

    def good(self, path):
        done = self.verify(path)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertRegex(done.stdout, r"\b5 +.*verified")

    def cut_everywhere(self, path, checkpoint):
        with open(path, "rb") as file:
            whole = file.read()
        for size in [*range(0, len(whole), BLOCK), len(whole) - 1]:
            with open(path, "wb") as file:
                file.write(whole[:size])
            done = self.verify(checkpoint)
            self.assertNotEqual(done.returncode, 0, "%s cut to %d of %d bytes: %s" % (path, size, len(whole), done.stdout))
        with open(path, "wb") as file:
            file.write(whole)

    def test_files(self):
        for name, write in FILES.items():
            path = os.path.join(self.top, name)
            for _ in range(SHAPES):
                with self.subTest(name):
                    write(path, self.rng)
                    self.good(path)
            self.cut_everywhere(path, path)

    def test_directories(self):
        for name, write in DIRECTORIES.items():
            path = os.path.join(self.top, name)
            for _ in range(SHAPES):
                with self.subTest(name):
                    shutil.rmtree(path, ignore_errors=True)
                    write(path, self.rng)
                    self.good(path)
            files = [os.path.join(directory, file) for directory, _, found in os.walk(path) for file in found]
            for file in files:
                self.cut_everywhere(file, path)
                os.rename(file, file + ".tmp")
                self.assertNotEqual(self.verify(path).returncode, 0, file)
                os.rename(file + ".tmp", file)
            self.good(path)


if __name__ == "__main__":
    unittest.main()
