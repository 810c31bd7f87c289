"""What a script may change around itself in the process, and how it is put back."""

import atexit
import functools
import gc
import importlib.metadata
import logging
import os
import random
import sys
import sysconfig
import warnings

from . import script


def library_folders():
    """Folders whose modules are not the user's."""
    paths = sysconfig.get_paths()
    found = {os.path.realpath(paths[name]) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    found.update(os.path.realpath(path) for path in sys.path
                 if path.rstrip("/").endswith(("site-packages", "dist-packages")))
    return tuple(folder + os.sep for folder in found)


# Packages that "prepare" imported, by their first name: all of their modules, wherever they lie.
prepared_packages = set()


def note_prepared_packages():
    prepared_packages.update(name.partition(".")[0] for name in sys.modules)


@functools.lru_cache(maxsize=None)
def installed_in(folder):
    """First names of what installers put into a folder, by their *.dist-info (pip --target, Spack, Lmod)."""
    names = set()
    for distribution in importlib.metadata.distributions(path=[folder]):
        names.update(file.parts[0].partition(".")[0] for file in distribution.files or ())
    return names


def folder_of(name, path):
    """The folder in which Python found the package of the module `name`."""
    if os.path.basename(path).startswith("__init__."):
        path = os.path.dirname(path)
    for _ in range(name.count(".") + 1):
        path = os.path.dirname(path)
    return path


def is_users(name, module, folders):
    path = getattr(module, "__file__", None)
    if not isinstance(path, str) or path.startswith("<"):
        return False
    first_name = name.partition(".")[0]
    if first_name in prepared_packages:
        return False
    real_path = os.path.realpath(path)
    if real_path.startswith(folders) or "site-packages" in real_path or "dist-packages" in real_path:
        return False
    return first_name not in installed_in(folder_of(name, path))


def is_users_function(names):
    """Is a function with these globals the user's?"""
    name = str(names.get("__name__"))
    if name == "__main__" or name.startswith("dstune_engine"):
        return name == "__main__"
    module = sys.modules.get(name)
    return module is not None and is_users(name, module, library_folders())


class Surroundings:
    """Taken before a script runs; put_back() after it."""

    def __init__(self):
        torch = sys.modules["torch"]
        numpy = sys.modules.get("numpy")
        self.argv = list(sys.argv)
        self.path = list(sys.path)
        self.environment = dict(os.environ)
        self.modules = set(sys.modules)
        self.main = sys.modules.get("__main__")
        self.streams = (sys.stdout, sys.stderr, sys.stdin)
        self.hooks = (sys.excepthook, sys.displayhook)
        self.log = (list(logging.root.handlers), logging.root.level, logging.root.manager.disable)
        self.filters = list(warnings.filters)
        self.collects = gc.isenabled()
        self.random = random.getstate()
        self.numpy = numpy.random.get_state() if numpy else None
        self.torch_random = torch.get_rng_state()
        self.torch = [
            (torch.set_default_dtype, torch.get_default_dtype()),
            (torch.set_num_threads, torch.get_num_threads()),
            (torch.set_grad_enabled, torch.is_grad_enabled()),
            (torch.set_float32_matmul_precision, torch.get_float32_matmul_precision()),
            (torch.use_deterministic_algorithms, torch.are_deterministic_algorithms_enabled()),
            (torch.autograd.set_detect_anomaly, torch.is_anomaly_enabled()),
        ]
        self.folder = os.getcwd()
        self.register = (atexit.register, atexit.unregister)
        atexit.register = lambda function, *args, **kwargs: function
        atexit.unregister = lambda function: None

    def put_back(self):
        torch = sys.modules["torch"]
        numpy = sys.modules.get("numpy")
        atexit.register, atexit.unregister = self.register
        sys.argv[:] = self.argv
        sys.path[:] = self.path
        for name in set(os.environ) - set(self.environment):
            del os.environ[name]
        for name, value in self.environment.items():
            if os.environ.get(name) != value:
                os.environ[name] = value
        if sys.modules.get("__main__") is not self.main:
            script.forget(sys.modules["__main__"])  # it may not have come to that itself
        sys.modules["__main__"] = self.main
        self.forget_users_modules_()
        sys.stdout, sys.stderr, sys.stdin = self.streams
        sys.excepthook, sys.displayhook = self.hooks
        logging.root.handlers[:], level, logging.root.manager.disable = self.log
        logging.root.setLevel(level)
        warnings.filters[:] = self.filters
        (gc.enable if self.collects else gc.disable)()
        random.setstate(self.random)
        if numpy and self.numpy:
            numpy.random.set_state(self.numpy)
        torch.set_rng_state(self.torch_random)
        for function, value in self.torch:
            function(value)
        if hasattr(torch, "set_default_device"):
            torch.set_default_device(None)
        try:
            os.chdir(self.folder)
        except OSError:
            os.chdir("/")

    def forget_users_modules_(self):
        folders = library_folders()
        for name in set(sys.modules) - self.modules:
            module = sys.modules[name]
            if module is not None and is_users(name, module, folders):
                del sys.modules[name]
                vars(module).clear()


def seed_everything(seed):
    """Before each run, so that one configuration gives the same losses each time."""
    torch = sys.modules["torch"]
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed % 2**32)
    torch.manual_seed(seed)
