"""Sharded checkpoints that are complete or absent, never half there.

The chief makes <dir>/ckpt-<step>.tmp, each ps writes and flushes its shard into it, the chief adds MANIFEST.json and
renames the directory last. A reader believes a directory only when it has its final name and all that its manifest lists.
"""
import hashlib
import json
import os
import shutil

import numpy as np

import model


def write_shard(directory, index, count, values):
    """Writes one ps's part; returns its manifest entry."""
    name = "parameters-%d-of-%d" % (index, count)
    data = values.astype("<f4").tobytes()
    _write_durably(os.path.join(directory, name), data)
    return {"name": name, "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def begin(root, step):
    directory = os.path.join(root, "ckpt-%d.tmp" % step)
    shutil.rmtree(directory, ignore_errors=True)        # left by a chief that died here
    os.makedirs(directory)
    return directory


def commit(directory, step, files):
    manifest = json.dumps({"version": 1, "step": step, "files": files}, indent=1).encode()
    _write_durably(os.path.join(directory, "MANIFEST.json.tmp"), manifest)
    os.rename(os.path.join(directory, "MANIFEST.json.tmp"), os.path.join(directory, "MANIFEST.json"))
    _flush_directory(directory)
    final = directory[:-len(".tmp")]
    if os.path.isdir(final):                            # of an abandoned run that came just as far
        os.rename(final, final + ".old.tmp")
        shutil.rmtree(final + ".old.tmp")
    os.rename(directory, final)
    _flush_directory(os.path.dirname(final))
    return final


def load(path):
    """(step, all parameters as one flat vector) of a checkpoint, whatever number of shards wrote it."""
    with open(os.path.join(path, "MANIFEST.json"), "rb") as file:
        manifest = json.load(file)
    parts = []
    for entry in sorted(manifest["files"], key=lambda entry: int(entry["name"].split("-")[1])):
        with open(os.path.join(path, entry["name"]), "rb") as file:
            data = file.read()
        if hashlib.sha256(data).hexdigest() != entry["sha256"]:
            raise ValueError("%s of %s is damaged" % (entry["name"], path))
        parts.append(np.frombuffer(data, dtype="<f4"))
    flat = np.concatenate(parts).astype(np.float32)
    if len(flat) != model.SIZE:
        raise ValueError("%s holds %d parameters, this model has %d" % (path, len(flat), model.SIZE))
    return manifest["step"], flat


def _write_durably(path, data):
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _flush_directory(path):
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
