"""Runs first in the interpreter that the program has become: argv is -c LIBRARY PROGRAM ARGUMENTS."""
import ctypes
import importlib.abc
import importlib.util
import os
import sys


def _load(path):
    """The program's library. Open MPI's components need its symbols where they are not linked to it."""
    library = ctypes.CDLL(path, mode=os.RTLD_NOW | os.RTLD_LOCAL)
    library.dstune_engine_source.argtypes = [ctypes.c_char_p]
    library.dstune_engine_source.restype = ctypes.c_char_p
    library.dstune_engine_begin.argtypes = [ctypes.c_int, ctypes.POINTER(ctypes.c_char_p)]
    library.dstune_engine_begin.restype = None
    library.dstune_engine_exchange.argtypes = [ctypes.c_char_p]
    library.dstune_engine_exchange.restype = ctypes.c_char_p
    library.dstune_engine_wait_interrupt.argtypes = []
    library.dstune_engine_wait_interrupt.restype = ctypes.c_int
    library.dstune_engine_note_sockets.argtypes = [ctypes.POINTER(ctypes.c_int), ctypes.c_int]
    library.dstune_engine_note_sockets.restype = None
    library.dstune_engine_note_progress.argtypes = [ctypes.c_char_p]
    library.dstune_engine_note_progress.restype = None
    library.dstune_engine_exit_code.argtypes = []
    library.dstune_engine_exit_code.restype = ctypes.c_int
    return library


class _Importer(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Modules of the package dstune_engine, whose sources are in the library."""

    def __init__(self, library):
        self._library = library

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] != "dstune_engine":
            return None
        if self._library.dstune_engine_source(name.encode()) is None:
            return None
        return importlib.util.spec_from_loader(name, self, is_package=name == "dstune_engine")

    def get_source(self, name):
        return self._library.dstune_engine_source(name.encode()).decode()

    def exec_module(self, module):
        name = module.__spec__.name
        source = self.get_source(name)
        exec(compile(source, "<" + name + ">", "exec"), module.__dict__)


def _main():
    if sys.version_info < (3, 10):
        sys.exit(
            "dstune-mpi: %s is Python %d.%d: the workload deepspeed needs 3.10 or newer; name another "
            'with "python" in dstune.workload' % ((sys.executable,) + sys.version_info[:2])
        )
    # What "-c" puts in front would let files of the working folder take the place of modules.
    if sys.path and sys.path[0] == "":
        del sys.path[0]
    library = _load(sys.argv[1])
    sys.meta_path.insert(0, _Importer(library))
    from dstune_engine import main

    main.run(library, sys.argv[2:])


_main()
