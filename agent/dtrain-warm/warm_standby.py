"""Becoming the script: one message says what the process is from now on, and nothing of the wait is left that the script could see."""
import functools
import io
import operator
import os
import runpy
import socket
import struct
import sys
import types
import weakref
from importlib.machinery import BuiltinImporter, SourceFileLoader

MAX_MESSAGE = 4 << 20       # arguments and environment; Linux itself allows 2 MiB by default
MAX_REASON = 400
MAX_NAMES = 1800            # of characters, for each list of modules: the supervisor reads lines of up to 4 KiB
# Of CPython, under which tests/warm was run: what a fresh process is like differs between them.
VERSIONS = ((3, 8), (3, 9), (3, 10), (3, 11), (3, 12), (3, 13))

# Variables that are read before the script is, so that this process has the old value in it. The first line that fits decides; a name with
# * stands for all that begin so. None: read when it is used, whatever the lines below it say. All others may change.
READ_AT_START = (
    ("PYTHON*", "the interpreter read it at its start"),
    ("LD_*", "the dynamic loader read it at the start"),
    ("GLIBC_TUNABLES", "the C library read it at the start"),
    ("MALLOC_*", "the allocator read it at the start"),
    ("MIMALLOC_*", "the allocator read it at the start"),
    ("TCMALLOC_*", "the allocator read it at the start"),
    ("LANG", "the encodings follow from it"),
    ("LANGUAGE", "messages of libraries follow from it"),
    ("LC_*", "the encodings follow from it"),
    ("TZ", "the C library has the zone loaded"),
    ("HOME", "libraries read their settings there when they are imported"),
    ("XDG_*", "libraries read their settings there when they are imported"),
    ("TMPDIR", "tempfile keeps the directory that it found first"),
    ("OMP_*", "OpenMP read it when it was loaded"),
    ("GOMP_*", "OpenMP read it when it was loaded"),
    ("KMP_*", "OpenMP read it when it was loaded"),
    ("MKL_*", "MKL read it when it was loaded"),
    ("OPENBLAS_*", "OpenBLAS made its threads by it"),
    ("GOTO_*", "OpenBLAS made its threads by it"),
    ("BLIS_*", "BLIS made its threads by it"),
    ("VECLIB_*", "BLAS made its threads by it"),
    ("NUMEXPR_*", "numexpr made its threads by it"),
    ("NUMBA_*", "numba reads its settings when it is imported"),
    ("NPY_*", "numpy reads its settings when it is imported"),
    ("NUMPY_*", "numpy reads its settings when it is imported"),
    ("MPL*", "matplotlib reads its settings when it is imported"),
    ("TORCH_NCCL_*", None),
    ("TORCH_*", "torch reads its settings when it is imported"),
    ("PYTORCH_*", "torch reads its settings when it is imported"),
    ("TF_CONFIG", None),
    ("TF_*", "TensorFlow reads its settings when it is imported"),
    ("JAX_*", "JAX reads its settings when it is imported"),
    ("XLA_*", "XLA reads its settings when it is imported"),
    ("HF_*", "the Hugging Face libraries read their settings when they are imported"),
    ("TRANSFORMERS_*", "the Hugging Face libraries read their settings when they are imported"),
    ("GRPC_*", "gRPC reads its settings when it is imported"),
    # CUDA_VISIBLE_DEVICES and its like may change: CUDA reads them at its first use, and a process that has used it never waits.
)


def why_fixed(name):
    for pattern, reason in READ_AT_START:
        if name == pattern or pattern.endswith("*") and name.startswith(pattern[:-1]):
            return reason
    return None


# ---- the message

class Order:
    """What this process becomes."""

    def __init__(self, body, descriptors):
        argc, envc = struct.unpack_from("<II", body)
        strings = [os.fsdecode(each) for each in body[8:].split(b"\0")]
        if len(strings) != 1 + argc + envc + 1 or strings[-1] or not argc or len(descriptors) != 2:
            raise ValueError("the message is malformed")
        self.cwd, self.arguments = strings[0], strings[1:1 + argc]
        self.environment = environment_of(strings[1 + argc:-1])
        self.descriptors = descriptors


def environment_of(strings):
    """As os.environ takes them: of two with the same name the first."""
    found = {}
    for name, equals, value in (each.partition("=") for each in strings):
        if name and equals:
            found.setdefault(name, value)
    return found


def receive(link):
    """An Order; EOFError at the end of the file."""
    descriptors = []
    begin, ancillary, _, _ = link.recvmsg(4, socket.CMSG_SPACE(2 * 4))
    for level, kind, content in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            descriptors += struct.unpack("%di" % (len(content) // 4), content)
    length = int.from_bytes(completed(link, begin, 4), "little")
    if length > MAX_MESSAGE:
        raise ValueError("the message has %d bytes, more than %d" % (length, MAX_MESSAGE))
    return Order(completed(link, b"", length), descriptors)


def completed(link, data, length):
    while len(data) < length:
        more = link.recv(length - len(data))
        if not more:
            raise EOFError
        data += more
    return data


# ---- environment and streams

def started_environment():
    """What this process was given. os.environ has more: the interpreter itself sets LC_CTYPE in the C locale, and libraries set theirs."""
    with open("/proc/self/environ", "rb") as file:
        return environment_of([os.fsdecode(each) for each in file.read().split(b"\0")])


def fixed_variable(started, new):
    """The first variable that differs and was read already, with the reason."""
    for name in sorted(started.keys() | new.keys()):
        if started.get(name) != new.get(name) and why_fixed(name):
            return "%s changed: %s" % (name, why_fixed(name))
    return None


def set_environment(started, new):
    """The new environment, in its order, for C's getenv, too; then what the interpreter and libraries have set, unless it differs in what
    they found: they would have set the same again."""
    names = list(os.environ) + [name for name in started if name not in os.environ]
    learnt = [(name, os.environ.get(name)) for name in names
              if os.environ.get(name) != started.get(name) and started.get(name) == new.get(name)]
    os.environ.clear()
    os.environ.update(new)
    for name, value in learnt:
        if value is not None:
            os.environ[name] = value
        else:
            os.environ.pop(name, None)


def renew_stream(stream, number, name):
    """Makes of a standard stream what the interpreter would make for the descriptor as it is now (create_stdio in pylifecycle.c). The
    objects are the same, since libraries may have kept them."""
    encoding, errors, buffer = stream.encoding, stream.errors, stream.buffer
    unbuffered = isinstance(buffer, io.RawIOBase)       # by -u or PYTHONUNBUFFERED
    raw = io.FileIO(number, "wb", closefd=False)
    raw.name = name
    if unbuffered:
        buffer = raw
    else:
        buffer.__init__(raw, raw._blksize)
    line_buffered = not unbuffered and (raw.isatty() or number == 2 and sys.version_info >= (3, 9))
    stream.__init__(buffer, encoding, errors, "\n", line_buffered, unbuffered)


def take_descriptors(order):
    sys.stdout.flush()
    sys.stderr.flush()
    for number, given in enumerate(order.descriptors, 1):
        os.dup2(given, number)
        os.close(given)
    renew_stream(sys.stdout, 1, "<stdout>")
    renew_stream(sys.stderr, 2, "<stderr>")


# ---- the script

def renew_main(target, fresh):
    """__main__ as the interpreter makes it. It is the same module: libraries may have kept it (multiprocessing and dill do)."""
    names = vars(sys.modules["__main__"])
    names.clear()
    names.update(fresh, __doc__=None)
    if not target.has_main:
        names.update(__file__=target.path, __loader__=SourceFileLoader("__main__", target.path))
    else:       # runpy puts in the rest
        del names["__file__"], names["__cached__"]
        names["__loader__"] = BuiltinImporter


LEFT = (types.ModuleType, types.FunctionType, type)     # here, since `types` may be empty by then


def drop_objects(names):
    """What happens to the script's global objects when the interpreter frees __main__: their __del__ runs, and still finds functions and
    modules."""
    for name in list(names):
        if not name.startswith("__") and not isinstance(names[name], LEFT):
            del names[name]


class Script:
    """Runs the target with no Python frame below it, as a fresh interpreter does: tracebacks, warnings with a stacklevel, faulthandler and
    whatever else walks the stack find nothing of this program.

    There is one place that is reached after the main file has ended and before the interpreter finalises: sys.excepthook, called from C for
    an exception that was not caught. So the main file ends with an exception, and the hook is made of C only while the script runs:
    str.format looks up three attributes in turn and ignores the hook's arguments; the first and third are methods here, the second calls a
    partial. What the third raises or returns becomes the exit code as for any script."""

    def __init__(self, target, fresh):
        self.target, self.fresh = target, fresh
        self.error = None           # of a script that cannot be compiled
        self.main = sys.modules["__main__"]         # the script may put another in its place
        names = vars(self.main)
        function, arguments = exec, ("", names)
        if target.has_main:
            function, arguments = runpy._run_module_as_main, (target.module or "__main__", target.module is not None)
        else:
            try:
                arguments = compile(target.read(), target.path, "exec", dont_inherit=True), names
            except SyntaxError as error:
                self.error = error.with_traceback(None)
        # C's only `try ... finally`: TextIOWrapper.close() calls flush() and then, whatever that raised, the buffer's close(). What close()
        # raises gets what flush() raised as its __context__. A StopIteration ends the iterator that called, silently.
        self.end = StopIteration()
        self.buffer = Ending(self.end)
        self.stream = io.TextIOWrapper(self.buffer, "ascii")
        self.stream.flush = map(function, *([each] for each in arguments)).__next__        # once, whatever closes the stream again
        self.body = functools.partial(next, iter(self.stream.close, None), None)

    def begin(self):
        self.hook = sys.excepthook
        sys.excepthook = functools.partial("{0.prepare}{0.run}{0.finish}".format, self)
        raise Begin

    @property
    def prepare(self):
        sys.excepthook = self.hook
        for name in ("last_type", "last_value", "last_traceback", "last_exc"):      # set for Begin
            if hasattr(sys, name):
                delattr(sys, name)
        renew_main(self.target, self.fresh)

    run = property(operator.methodcaller("body"))

    @property
    def finish(self):
        if not self.target.has_main:        # as after any script, before atexit
            flush(sys.stderr)
            flush(sys.stdout)
        self.buffer.end = None
        self.stream.flush = bool
        self.stream.close()
        failure = self.error or self.end.__context__
        self.end.__context__ = None
        names = vars(self.main)
        self.finalise_objects(names)
        if isinstance(failure, SystemExit):
            try:
                raise failure
            finally:
                del failure         # or this frame would keep what the frames of the script hold
        if failure is not None:
            report(failure)
            if not self.target.has_main or type(failure) is KeyboardInterrupt:
                return      # The interpreter removes __file__, as after any script that it ran, and ends with 1 or by SIGINT.
            raise SystemExit(1)
        if not self.target.has_main:
            for name in ("__file__", "__cached__"):     # This exit leaves them, the end of a script does not: before atexit.
                names.pop(name, None)
        raise SystemExit

    def finalise_objects(self, names):
        """C keeps the frame of the main file until the end, and with it all names of __main__, which would never be finalised."""
        main = sys.modules.get("__main__")
        if not isinstance(main, types.ModuleType):
            main = sys
        self.at_end = weakref.ref(main, lambda _: drop_objects(names))
        if main is self.main:
            self.main = None


class Standby:
    """A target with its imports done."""

    def __init__(self, imports, words, loaded_at_start):
        if sys.implementation.name != "cpython" or sys.version_info[:2] not in VERSIONS:
            raise imports.Cold("this interpreter is not known well enough")
        self.imports, self.started = imports, started_environment()
        flags = sys.flags
        if flags.inspect or flags.interactive or flags.verbose or "importtime" in sys._xoptions or "PYTHONINSPECT" in self.started:
            raise imports.Cold("the interpreter was asked to show its imports or to go on at a prompt")
        self.descriptors, self.streams = imports.open_descriptors(), (sys.stdout, sys.stderr)
        self.target = imports.Target(words)
        self.before_argv = getattr(sys, "orig_argv", [])[:-len(sys.argv)]
        sys.argv[:] = words[:1]     # the same list, which libraries may keep
        self.libraries = imports.Libraries(self.target, sys.path[0 if self.target.safe_path else 1:], loaded_at_start)

    def do_imports(self, modules):
        if modules is None:
            self.libraries.import_for(self.target)
        else:
            self.libraries.import_list(modules)
        self.imports.require_idle(self.descriptors, self.streams)
        self.libraries.require_same()
        if self.target.module:
            name = self.target.spec(self.libraries.path).name
            if name in sys.modules:     # runpy would warn
                raise self.imports.Cold("%s is imported by the libraries that it needs" % name)

    def ready_line(self):
        libraries = self.libraries
        without = " without " + ",".join(libraries.failed) if libraries.failed else ""
        return "ready %s %d%s\n" % (",".join(libraries.imported)[:MAX_NAMES] or "-", libraries.milliseconds, without[:MAX_NAMES])

    def become(self, order, fresh):
        """All but the script itself; Cold if a start of the interpreter would have another result."""
        target = self.target
        if order.arguments[:len(target.words)] != target.words:
            raise self.imports.Cold("the command is another one")
        os.chdir(order.cwd)         # also where it is the same: the directory may have been replaced
        if os.getcwd() != target.cwd:
            raise self.imports.Cold("the working directory is another one")
        fixed = fixed_variable(self.started, order.environment)
        if fixed:
            raise self.imports.Cold(fixed)
        self.libraries.require_same()
        set_environment(self.started, order.environment)
        sys.argv[:] = order.arguments[len(target.words) - 1:]
        if target.module:
            sys.argv[0] = "-m"      # until runpy has found the module
        if hasattr(sys, "orig_argv"):
            sys.orig_argv[:] = self.before_argv + order.arguments
        take_descriptors(order)
        return Script(target, fresh)


class Begin(Exception):
    pass


class Ending(io.BytesIO):
    def __init__(self, end):
        super().__init__()
        self.end = end

    def close(self):
        if self.end is not None:
            raise self.end
        super().close()


def flush(stream):
    try:
        stream.flush()
    except Exception:
        pass        # the end of the interpreter tries again, and has its exit code for that


def report(failure):
    """What the interpreter does with an exception that was not caught."""
    sys.last_type, sys.last_value, sys.last_traceback = type(failure), failure, failure.__traceback__
    if sys.version_info >= (3, 12):
        sys.last_exc = failure
    try:
        sys.excepthook(type(failure), failure, failure.__traceback__)
    except SystemExit:
        raise
    except BaseException as another:
        sys.stderr.write("Error in sys.excepthook:\n")
        another.__traceback__ = another.__traceback__.tb_next       # without this function
        sys.__excepthook__(type(another), another, another.__traceback__)
        sys.stderr.write("\nOriginal exception was:\n")
        sys.__excepthook__(type(failure), failure, failure.__traceback__)
    if type(failure) is KeyboardInterrupt:
        # The interpreter ends by SIGINT if the last code that it compiled and ran raised this.
        try:
            exec("raise KeyboardInterrupt", {})
        except KeyboardInterrupt:
            pass
