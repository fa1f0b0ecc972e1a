#!/usr/bin/python3
"""Deep verification (`dtrainctl verify`) of checkpoints that are one large file, beside reading the same file alone (dd): of torch.save
(CRC-32), with a manifest (SHA-256), and of safetensors (which have no checksum).

In turns, each a process of its own: from the disk (the file's pages are dropped before), and from the page cache, where neither waits for
a disk and the work for each byte is compared. Processor time beside elapsed time, since the latter also depends on what else runs.
"""
import hashlib
import json
import os
import subprocess
import sys
import time

import common
from common import need, report

TORCH = "import sys, torch; torch.save({'w': torch.randint(0, 256, (int(sys.argv[2]) << 20,), dtype=torch.uint8)}, sys.argv[1])"


def measured(command):
    """ms elapsed, and of processor time."""
    since = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    need(process.returncode == 0, "%s failed: a good checkpoint was refused, or could not be read" % command[0])
    return (time.monotonic() - since) * 1000, (usage.ru_utime + usage.ru_stime) * 1000


def forget(path):
    """Drops the file's pages from the cache; a virtual machine's host may still have them."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(file)


def write_torch(bench, mib):
    path = bench.path("ckpt_1.pt")
    subprocess.run(["/usr/bin/python3", "-c", TORCH, path, str(mib)], check=True)
    return path, path


def write_manifest(bench, mib):
    size, sha = mib << 20, hashlib.sha256()
    path = bench.path("step-1", "weights")
    os.makedirs(os.path.dirname(path))
    with open(path, "wb") as file:
        for _ in range(mib):
            block = os.urandom(1 << 20)
            sha.update(block)
            file.write(block)
    file = {"name": "weights", "size": size, "sha256": sha.hexdigest()}
    return bench.write("step-1/MANIFEST.json", json.dumps({"version": 1, "step": 1, "files": [file]})), path


def write_safetensors(bench, mib):
    size, path = mib << 20, bench.path("model_step_1.safetensors")
    header = json.dumps({"w": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    with open(path, "wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        for _ in range(mib):
            file.write(os.urandom(1 << 20))
    return path, path


def measure(bench, options):
    common.need_packages("python3-torch")
    for what, write in (("torch.save", write_torch), ("manifest", write_manifest), ("safetensors", write_safetensors)):
        checkpoint, path = write(bench, options.mib)
        compare(what, checkpoint, path, options)
        os.unlink(path)


def compare(what, checkpoint, path, options):
    sides = {"verify": [os.path.join(common.harness.BIN, "dtrainctl"), "verify", checkpoint],
             "dd": ["dd", "if=" + path, "of=/dev/null", "bs=1M"]}
    for place in ("the disk", "the page cache"):
        samples = {name: [] for name in sides}
        measured(sides["dd"])
        for number in range(options.rounds or (3 if options.quick else 20)):
            for name in sorted(sides, reverse=number % 2 == 0):
                if place == "the disk":
                    forget(path)
                samples[name].append(measured(sides[name]))
        for index, kind in enumerate(("elapsed", "processor time")):
            report("verify", "%s, %d MiB from %s: %s" % (what, options.mib, place, kind), "ms",
                   [pair[index] for pair in samples["verify"]], "dd", [pair[index] for pair in samples["dd"]])


def more_options(parser):
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--mib", type=int, default=1024)


if __name__ == "__main__":
    sys.exit(common.run(measure, __doc__, more_options))
