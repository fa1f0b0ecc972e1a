"""A script cannot tell whether its process waited: every test runs one both ways and compares output and end."""
import os
import signal
import textwrap
import unittest

import warm_lab


class Ends(warm_lab.WarmCase):
    def test_end(self):
        self.assertEqual(self.same_script("print('done')").status, 0)

    def test_codes(self):
        for end, status in (("sys.exit()", 0), ("sys.exit(7)", 7), ("sys.exit('some text')", 1), ("raise SystemExit(None)", 0),
                            ("sys.exit((1, 2))", 1), ("sys.exit(-1)", 255), ("os._exit(9)", 9), ("sys.exit(True)", 1),
                            ("os.kill(os.getpid(), 9)", -9), ("os.abort()", -6)):
            with self.subTest(end):
                self.assertEqual(self.same_script("import os, sys\nprint('x', flush=True)\n" + end).status, status)

    def test_exception(self):
        found = self.same_script("""
            def f(x):
                return 1 / x
            f(0)
            """)
        self.assertEqual(found.status, 1)
        self.assertIn("ZeroDivisionError", found.stderr)

    def test_exceptions_with_causes(self):
        self.same_script("""
            def f():
                try:
                    {}['a']
                except KeyError as e:
                    raise ValueError('b') from e
            try:
                f()
            except ValueError:
                raise RuntimeError('c')
            """)

    def test_stop_iteration(self):
        self.assertIn("StopIteration", self.same_script("next(iter([]))").stderr)

    def test_syntax_error(self):
        # the standby cannot read it, so the interpreter starts as ever; but it may become wrong while the standby waits
        self.write("script.py", "x = 1")
        waiting = self.standby("script.py")
        self.assertRegex(waiting.line(), "^ready ")
        self.write("script.py", "x = (1\ny = 2\n")
        cold = self.cold(["script.py"])
        out, err = warm_lab.outputs(self.directory)
        with out, err:
            self.assertEqual(waiting.order(["script.py"], stdout=out.fileno(), stderr=err.fileno()), "go")
            self.assertEqual(self.outcome(waiting.process, out, err, None), cold)
        self.assertIn("SyntaxError", cold.stderr)

    def test_syntax_warning(self):
        self.assertIn("SyntaxWarning", self.same_script("x = 1\nprint(x is 1)").stderr)

    def test_excepthook(self):
        self.same_script("""
            import sys
            def hook(kind, value, traceback):
                print('hook', kind, value, traceback.tb_lineno, sys.last_value)
            print(sys.excepthook is sys.__excepthook__, hasattr(sys, 'last_value'), hasattr(sys, 'last_exc'))
            sys.excepthook = hook
            raise ValueError('x')
            """)

    def test_excepthook_that_fails(self):
        for end in ("raise KeyError('again')", "sys.exit(5)"):
            with self.subTest(end):
                self.same_script("""
                    import sys
                    def hook(kind, value, traceback):
                        %s
                    sys.excepthook = hook
                    raise ValueError('x')
                    """ % end)

    def test_unraisable(self):
        self.same_script("""
            class A:
                def __del__(self): raise ValueError('in __del__')
            a = A()
            del a
            """ + ("b = A()" if warm_lab.VERSION > (3, 8) else ""))     # 3.8 finds its source line no more at the very end

    def test_finalisers(self):
        for end in ("", "sys.exit(2)", "raise ValueError"):
            with self.subTest(end):
                self.same_script("""
                    import atexit, sys
                    class A:
                        def __init__(self, name): self.name = name
                        def __del__(self): print('gone', self.name, sys.modules.get('__main__'))
                    atexit.register(print, 'exit')
                    a = A('global')
                    def main():
                        a = A('local')
                        %s
                    main()
                    """ % end)

    def test_interrupt(self):
        text = """
            import time
            print('sleeping', flush=True)
            time.sleep(60)
            """
        found = self.same_script(text, signal_after=(signal.SIGINT, "sleeping"))
        self.assertEqual(found.status, -signal.SIGINT)
        self.assertIn("KeyboardInterrupt", found.stderr)

    def test_terminate(self):
        text = "import time\nprint('sleeping', flush=True)\ntime.sleep(60)"
        self.assertEqual(self.same_script(text, signal_after=(signal.SIGTERM, "sleeping")).status, -signal.SIGTERM)

    def test_atexit(self):
        for end in ("", "raise ValueError", "sys.exit(3)"):
            with self.subTest(end):
                self.same_script("""
                    import atexit, os, sys
                    atexit.register(os.write, 1, b'not buffered')
                    atexit.register(lambda: print('first', '__file__' in globals(), __name__))
                    atexit.register(print, 'second')
                    sys.stdout.write('no end of line')
                    %s
                    """ % end)

    def test_threads_are_waited_for(self):
        self.same_script("""
            import threading, time
            def work():
                time.sleep(0.1)
                print('thread', threading.current_thread().name)
            threading.Thread(target=work).start()
            print(threading.current_thread() is threading.main_thread(), threading.active_count())
            """)

    def test_thread_that_fails(self):
        self.same_script("""
            import threading
            def work(): raise ValueError('in a thread')
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
            """)


class Frames(warm_lab.WarmCase):
    def test_no_frame_below(self):
        self.same_script("""
            import inspect, sys, traceback
            print(sys._getframe().f_back, len(inspect.stack()))
            traceback.print_stack()
            def f(): traceback.print_stack()
            f()
            """)

    def test_stacklevel(self):
        self.same_script("""
            import warnings
            warnings.warn('one')
            warnings.warn('two', stacklevel=2)
            warnings.warn('three', stacklevel=3)
            """)

    def test_faulthandler(self):
        found = self.same_script("""
            import faulthandler, os
            faulthandler.enable()
            def f():
                faulthandler.dump_traceback()
                os.abort()
            f()
            """)
        self.assertEqual(found.status, -signal.SIGABRT)
        self.assertIn("Fatal Python error", found.stderr)

    def test_logging_finds_the_caller(self):
        self.same_script("""
            import logging
            logging.basicConfig(format='%(levelname)s %(filename)s %(lineno)d %(funcName)s %(processName)s %(message)s')
            logging.warning('text', stack_info=True)
            """)


class Globals(warm_lab.WarmCase):
    def test_main(self):
        text = '''
            import sys
            print(list(globals()))
            for name in ('__name__', '__doc__', '__package__', '__spec__', '__annotations__', '__builtins__', '__file__', '__cached__'):
                print(name, globals()[name])
            print(type(__loader__), __loader__.name, __loader__.path, sys.modules['__main__'].__dict__ is globals())
            '''
        text = textwrap.dedent(text)
        self.same_script(text)
        self.same_script('"""With a docstring."""' + text)
        self.same_script("x: int = 1\n" + text)

    def test_another_main(self):
        self.same_script("""
            import atexit, sys, types
            class A:
                def __del__(self): print('gone')
            a = A()
            sys.modules['__main__'] = types.ModuleType('__main__')
            def f(): return a, __name__
            print(type(f()[0]), f()[1])
            atexit.register(lambda: print(f()[1]))
            """)

        self.same_script("import sys; del sys.modules['__main__']; print('no __main__')")

    def test_argv(self):
        self.same_script("import sys; print(sys.argv, getattr(sys, 'orig_argv', None) and sys.orig_argv[1:])", "a", "--b=c", "", "ü")

    def test_path(self):
        self.write("module.py", "print('module', __file__)")
        text = "import sys; print(sys.path, sys.meta_path, sys.path_hooks); import module"
        self.same_script(text)
        self.write("lib/other.py", "")
        self.same_script(text, environment=dict(warm_lab.ENVIRONMENT, PYTHONPATH="lib:/nonexistent/x"))

    def test_link_to_script(self):
        self.write("real/script.py", "import sys; print(sys.path[0], __file__, sys.argv); import beside")
        self.write("real/beside.py", "print(__file__)")
        os.symlink("real/script.py", self.work + "/link.py")
        self.same(["link.py"])
        self.same(["./link.py", "x"])
        self.same([self.work + "/real/../link.py"])

    def test_own_modules(self):
        """The names of this program's own modules are free."""
        self.write("warm_standby.py", "x = 1")
        self.write("warm_imports.py", "x = 2")
        self.same_script("import warm_standby, warm_imports; print(warm_standby.x, warm_imports.x)")

    def test_state(self):
        self.same_script("""
            import gc, os, signal, sys, threading, warnings
            print(gc.isenabled(), gc.get_threshold(), gc.get_freeze_count(), sys.getrecursionlimit(), sys.getswitchinterval())
            print(sys.flags, sys._xoptions, sys.warnoptions, sys.dont_write_bytecode, sys.exc_info(), sys.gettrace(), sys.getprofile())
            print([f[:2] + f[2:] for f in warnings.filters])
            print([signal.getsignal(n) for n in range(1, 32)])
            print(signal.pthread_sigmask(signal.SIG_BLOCK, []), signal.set_wakeup_fd(-1))
            print(sorted(os.listdir('/proc/self/fd')), os.nice(0), os.getcwd(), os.umask(0))
            print(sys.executable, sys.prefix, sys.stdin, sys.stdin.fileno(), sys.getfilesystemencoding(), sys.excepthook, sys.displayhook)
            print([os.get_inheritable(n) for n in (0, 1, 2)])
            """)

    def test_random(self):
        text = "import random; print(random.random(), hash('text'))"
        self.write("script.py", text)
        self.assertNotEqual(self.warm(["script.py"]), self.warm(["script.py"]))
        self.same_script("import random; random.seed(1); print(random.random())")
        self.same_script("print(hash('text'))", environment=dict(warm_lab.ENVIRONMENT, PYTHONHASHSEED="5"))


class Processes(warm_lab.WarmCase):
    POOL = """
        import multiprocessing, os, sys
        class Item:
            def __init__(self, x): self.x = x
        def work(item):
            return Item(item.x * 2), __name__, multiprocessing.current_process().name.split('-')[0]
        if __name__ == '__main__':
            context = multiprocessing.get_context(%r)
            with context.Pool(1) as pool:
                result = pool.map(work, [Item(1), Item(2)])
            print([(type(i).__module__, i.x, name, process) for i, name, process in result])
        """

    def test_fork(self):
        self.same_script(self.POOL % "fork")

    def test_spawn(self):
        self.same_script(self.POOL % "spawn")

    def test_forkserver(self):
        self.same_script(self.POOL % "forkserver")

    def test_spawn_from_a_module(self):
        self.write("pkg/__init__.py", "")
        self.write("pkg/pool.py", self.POOL % "spawn")
        self.same(["-m", "pkg.pool"])

    def test_bare_fork(self):
        self.same_script("""
            import os, sys
            pid = os.fork()
            if not pid:
                print('child')
                sys.exit(3)
            print(os.waitpid(pid, 0)[1] >> 8)
            """)

    def test_pickle(self):
        self.same_script("""
            import pickle, __main__
            class A: x = 1
            print(pickle.dumps(A()), pickle.loads(pickle.dumps(A())).x, __main__.A is A)
            """)

    def test_subprocess(self):
        self.same_script("""
            import subprocess, sys
            print(subprocess.run([sys.executable, '-c', 'import os; print(os.environ, sorted(os.listdir("/proc/self/fd")))'],
                  stdout=subprocess.PIPE, close_fds=False).stdout)
            """)

    def test_exec(self):
        self.same_script("""
            import os, sys
            print(sys.argv, flush=True)
            if len(sys.argv) < 3:
                os.execv(sys.executable, [sys.executable] + sys.argv + ['more'])
            """, "x")

    def test_pid_stays(self):
        self.write("script.py", "import os; print(os.getpid())")
        waiting = self.standby("script.py")
        waiting.line()
        out, err = warm_lab.outputs(self.directory)
        with out, err:
            waiting.order(["script.py"], stdout=out.fileno(), stderr=err.fileno())
            self.assertEqual(self.outcome(waiting.process, out, err, None), ("%d\n" % waiting.process.pid, "", 0))


if __name__ == "__main__":
    unittest.main()
