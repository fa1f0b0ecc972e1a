"""What a script imports: read from its source, imported without the directories of its own, and what that import must not have done."""
import ast
import os
import sys
import time
import warnings
from importlib.machinery import PathFinder

DEVICES = ("/dev/nvidia", "/dev/kfd", "/dev/dri")     # who has one of these open may hold memory of a GPU
# Modules whose import is what they do: a script that imports them wants to see it.
SPEAKING = ("antigravity", "this")


class Cold(Exception):
    """The task begins by a start of the interpreter instead; the text says why."""


# ---- the target: what the interpreter is told to run

class Target:
    """`script.py`, `-m module`, or a directory or zip file with __main__.py, as the interpreter looks for it."""

    def __init__(self, arguments):
        self.words = arguments[:2] if arguments[0] == "-m" else arguments[:1]
        self.cwd = os.getcwd()
        # -P and -I, which kept the directory of this program out, too (older versions have -I only)
        self.safe_path = getattr(sys.flags, "safe_path", sys.flags.isolated)
        self.module = self.path = None
        self.has_main = True            # runpy looks for a module and runs it
        if self.words[0] == "-m":
            self.module = self.words[1]
            return
        if self.words[0].startswith("-"):
            raise Cold("%s is not a file or -m" % self.words[0])
        self.path = self.words[0]
        if sys.version_info >= (3, 9):      # from where on the interpreter makes it absolute, but does not normalise it
            self.path = os.path.join(self.cwd, self.path)
        if not os.path.exists(self.path):
            raise Cold("there is no %s" % self.path)
        if self.path.endswith(".pyc"):
            raise Cold("%s is not source" % self.path)
        self.has_main = importable(self.path)

    def first_directory(self):
        """What the interpreter puts in front of sys.path, or None."""
        if self.path and self.has_main:
            return self.path
        if self.safe_path:
            return None
        return self.cwd if self.module else os.path.dirname(os.path.realpath(self.path))

    def read(self):
        with open(self.path, "rb") as file:
            return file.read()

    def spec(self, path):
        """Of the module that runs; found without importing the packages that it is in, since their code acts."""
        name, found = "", None
        for part in (self.module or "__main__").split("."):
            name = name + "." + part if name else part
            found = PathFinder.find_spec(name, path)
            if found is None:
                raise Cold("there is no module %s" % name)
            path = found.submodule_search_locations
        return found if path is None else PathFinder.find_spec(name + ".__main__", path)


def importable(path):
    """As the interpreter decides whether a file or directory has modules: one of its hooks takes it."""
    for hook in sys.path_hooks:
        try:
            hook(path)
            return True
        except ImportError:
            pass
    return False


# ---- reading

def imports_of(source, name):
    """[(module, names)] of the imports that run when the script is read, but for those of its own package."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")     # the script's own run shows them
        tree = compile(source, name, "exec", ast.PyCF_ONLY_AST, dont_inherit=True)
    found = []
    for node in statements(tree.body):
        if isinstance(node, ast.Import):
            found += [(alias.name, ()) for alias in node.names]
        elif node.level == 0:
            found.append((node.module, tuple(alias.name for alias in node.names)))
    return found


def statements(body):
    for node in body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield node
        elif isinstance(node, ast.If):
            if not guards(node.test):
                yield from statements(node.body)
            yield from statements(node.orelse)
        elif isinstance(node, ast.With):
            yield from statements(node.body)
        elif isinstance(node, ast.Try):     # not the handlers: they stand in for a module that is missing
            yield from statements(node.body + node.orelse + node.finalbody)


def guards(test):
    """`__name__ == "__main__"` begins the work, TYPE_CHECKING is never true."""
    return any(getattr(node, "id", getattr(node, "attr", None)) in ("__name__", "TYPE_CHECKING") for node in ast.walk(test))


# ---- importing

class Libraries:
    """Imports modules for a target, and knows afterwards whether the target would have got the same ones."""

    def __init__(self, target, path, loaded_at_start):
        first = target.first_directory()
        self.path = path if first is None else [first] + path       # of the script
        self.loaded_at_start = loaded_at_start
        self.missing = set()                # top-level modules that were asked for and not found
        named = [] if sys.flags.ignore_environment else [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
        named = {os.path.abspath(entry) for entry in named}
        roots = tuple(os.path.join(root, "") for root in (target.cwd, first) if root)
        inside = {entry for entry in self.path if os.path.join(entry, "").startswith(roots)}
        # A virtual environment may lie in the directory of the task, but nothing that PYTHONPATH names there is one.
        self.installed = [entry for entry in path if is_installed(entry) and not (entry in named and entry in inside)]
        self.own = [entry for entry in self.path if entry == first or entry not in self.installed and (entry in named or entry in inside)]
        self.stamps = None
        self.imported, self.failed, self.milliseconds = [], [], 0

    def is_library(self, module):
        """Installed with or for the interpreter, and not hidden by one of the script's own."""
        name = module.split(".")[0]
        return (name not in SPEAKING and PathFinder.find_spec(name, self.installed) is not None
                and not any(regular(name, entry) for entry in self.own))

    def import_for(self, target):
        """The libraries among what the target imports. Nothing is found in the script's own directories meanwhile: code there may act."""
        if not target.has_main:
            wanted = imports_of(target.read(), target.path)
        else:
            spec = target.spec(self.path)
            source = spec and spec.loader and spec.loader.get_source(spec.name)
            if source is None:
                raise Cold("%s has no source" % " ".join(target.words))
            wanted = ([(spec.parent, ())] if spec.parent else []) + imports_of(source, spec.origin)
        wanted = [each for each in wanted if self.is_library(each[0])]
        # What a library puts in front of or behind these entries stays in its place.
        hidden = {"/dev/null/dtrain-%d" % number: entry for number, entry in enumerate(self.path) if entry in self.own}
        places = {entry: place for place, entry in hidden.items()}
        self.import_all(wanted, [places.get(entry, entry) for entry in self.path])
        sys.path[:] = [hidden.get(entry, entry) for entry in sys.path]
        for place in hidden:
            sys.path_importer_cache.pop(place, None)

    def import_list(self, modules):
        self.import_all([(module, ()) for module in modules], self.path)

    def import_all(self, wanted, path):
        sys.path[:] = path
        sys.meta_path.append(self)
        begin, before = time.monotonic(), set(sys.modules)
        for module, names in wanted:
            try:
                __import__(module, None, None, names)       # names: submodules among them are imported, too, as by `from`
            except (Exception, SystemExit) as failure:
                self.failed.append("%s:%s" % (module, type(failure).__name__))
            else:
                if module not in before and module not in self.imported:
                    self.imported.append(module)
        self.milliseconds = int((time.monotonic() - begin) * 1000)
        sys.meta_path.remove(self)
        self.stamps = self.stamps_now()     # not before: an import may have made the directory __pycache__

    def find_spec(self, name, path=None, target=None):
        """The last finder: nobody else knew the module."""
        if path is None:
            self.missing.add(name)

    def stamps_now(self):
        """When a name was last put into or taken out of the directories of libraries."""
        return [os.stat(entry).st_mtime_ns if os.path.isdir(entry) else None for entry in self.installed]

    def require_same(self):
        """The script gets from `import` what it would get in a fresh interpreter."""
        if self.stamps != self.stamps_now():
            raise Cold("libraries were installed or removed since the imports")
        names = self.missing.union(name for name in sys.modules if "." not in name and name not in self.loaded_at_start)
        for entry in self.own:
            for name in sorted(names & stems(entry) if os.path.isdir(entry) else names):
                there, here = regular(name, entry), getattr(sys.modules.get(name), "__spec__", None)
                origin = here and here.origin
                # neither of these is looked for in sys.path
                if there and origin != there.origin and origin not in ("built-in", "frozen"):
                    raise Cold("%s comes before the library of that name" % there.origin)
            sys.path_importer_cache.pop(entry, None)        # it has the listing of a moment ago; a fresh interpreter has none


def is_installed(entry):
    standard = os.path.dirname(os.__file__)
    return entry == standard or os.path.basename(entry) in ("lib-dynload", "site-packages", "dist-packages")


def regular(name, entry):
    """The module of this name in this directory or zip file, unless it is only a directory: any module elsewhere comes before that."""
    spec = PathFinder.find_spec(name, [entry])
    return spec if spec and spec.loader and spec.has_location else None


def stems(directory):
    return {name.split(".")[0] for name in os.listdir(directory)}


# ---- what imports must not have done

def open_descriptors():
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            found[name] = os.readlink("/proc/self/fd/" + name)
        except OSError:
            pass        # the one that listed them
    return found


def require_idle(before, streams):
    """Raises Cold if the imports left something that would act while this process waits, or that a fresh process would not share."""
    for number, place in open_descriptors().items():
        if before.get(number) != place and place.startswith(("socket:",) + DEVICES):
            raise Cold("descriptor: the imports opened %s" % place)
    # Native threads may wait (the pools of BLAS and OpenMP do from their import on); those that run Python may do anything.
    threading = sys.modules.get("threading")
    if threading is not None and threading.active_count() > 1:
        raise Cold("threads: %s" % ", ".join(thread.name for thread in threading.enumerate()[1:]))
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        raise Cold("processes: the imports started one")
    except ChildProcessError:
        pass
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "cuda") and torch.cuda.is_initialized():
        raise Cold("gpu: the imports initialised CUDA")
    if streams != (sys.stdout, sys.stderr):
        raise Cold("output: the imports replaced sys.stdout or sys.stderr")
