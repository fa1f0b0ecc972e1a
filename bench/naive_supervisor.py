"""What a person would write instead of dtrain, to recover a training whose parameter server died: the peer of recovery.py.

    naive_supervisor.py CONFIG.json

CONFIG: {"directory", "checkpoints", "logs", "tasks": {NAME: {"command", "environment"}}}. Starts all tasks; when one whose name
begins with "ps" dies it kills the others and starts the same commands again, at the same addresses, with DTRAIN_RESTORE_FROM =
the newest checkpoint directory, unchecked. Output: LOGS/NAME.ROUND. Ends with SIGTERM.
"""
import json
import os
import signal
import subprocess
import sys


def newest_checkpoint(directory):
    names = [name for name in os.listdir(directory) if name.startswith("ckpt-") and name[5:].isdigit()]
    return os.path.join(directory, max(names, key=lambda name: int(name[5:]))) if names else ""


def start(config, number):
    restore = newest_checkpoint(config["checkpoints"])
    running = {}
    for name, task in config["tasks"].items():
        environment = dict(os.environ, **task["environment"])
        if restore:
            environment["DTRAIN_RESTORE_FROM"] = restore
        with open(os.path.join(config["logs"], "%s.%d" % (name, number)), "w") as log:
            running[name] = subprocess.Popen(task["command"], cwd=config["directory"], env=environment, stdin=subprocess.DEVNULL,
                                             stdout=log, stderr=log)
    return running


def end(running):
    for process in running.values():
        process.kill()
    for process in running.values():
        process.wait()


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with open(sys.argv[1]) as file:
        config = json.load(file)
    number, running = 1, start(config, 1)
    try:
        while True:
            status = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
            name = next(name for name, process in running.items() if process.pid == status.si_pid)
            if not name.startswith("ps"):
                running.pop(name).wait()
                continue
            end(running)
            number += 1
            running = start(config, number)
    finally:
        end(running)


if __name__ == "__main__":
    main()
