"""Waits beside a Python task with its imports done, and becomes the task's next attempt (docs/warm-standby.md).

    INTERPRETER FLAGS... dtrain-warm.py FD auto TARGET...           what the target imports is read from its source
    INTERPRETER FLAGS... dtrain-warm.py FD list a,b,c TARGET...     these modules are imported

FLAGS and TARGET are those of the task's command: `script.py`, `-m module`, a directory or zip file. User, working directory, environment
and limits are the task's. FD is a connected stream socket. Import's own output goes to stderr. Lines that this program writes to FD:

    ready MODULES MILLISECONDS[ without MODULE:ERROR,...]   MODULES with commas between them, or -
    cold REASON                                             in place of any other line; the program then exits 0
    go                                                      the answer to the message below: from here on this process is the task

It reads one message: u32 bytes that follow, u32 argc, u32 envc (little endian), then strings that end with NUL: the working directory, argc
arguments (the command behind FLAGS), envc NAME=value. Two descriptors come with the first byte: stdout and stderr. At the end of file the
program exits 0.
"""
FRESH = dict(globals())     # __main__ as the interpreter made it
import sys

LOADED_AT_START = frozenset(sys.modules)

import os
import socket


def helpers():
    """The modules beside this file. A script's modules may have the same names, and files of Python's have no place here."""
    path, dont_write = sys.path[:], sys.dont_write_bytecode
    sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
    sys.dont_write_bytecode = True
    import warm_imports
    import warm_standby
    import warm_torch
    sys.path[:], sys.dont_write_bytecode = path, dont_write
    del sys.modules["warm_imports"], sys.modules["warm_standby"], sys.modules["warm_torch"]
    return warm_imports, warm_standby, warm_torch


def become():
    warm_imports, warm_standby, warm_torch = helpers()
    link = socket.socket(fileno=int(sys.argv[1]))
    try:
        link.set_inheritable(False)
        os.dup2(2, 1)
        modules, words = (None, sys.argv[3:]) if sys.argv[2] == "auto" else (sys.argv[3].split(","), sys.argv[4:])
        standby = warm_standby.Standby(warm_imports, words, LOADED_AT_START)
        standby.do_imports(modules)
        link.sendall(standby.ready_line().encode())
        script = standby.become(warm_standby.receive(link), FRESH)
        warm_torch.wait_for_stores()
        link.sendall(b"go\n")
        link.close()
        return script
    except EOFError:
        os._exit(0)
    except BaseException as failure:
        reason = str(failure) if isinstance(failure, warm_imports.Cold) else "%s: %s" % (type(failure).__name__, failure)
        try:
            link.sendall(("cold %s\n" % " ".join(reason.split())[:warm_standby.MAX_REASON]).encode(errors="replace"))
        finally:
            os._exit(0)     # no handlers of libraries: nothing has begun


become().begin()        # not from within it: C keeps the frames that begin() is called from until the end, with all that they hold
