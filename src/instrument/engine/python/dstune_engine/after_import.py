"""Calls a function with each module of some packages right after it was imported."""

import importlib.abc
import importlib.util
import sys


class Finder(importlib.abc.MetaPathFinder):
    def __init__(self):
        self.callbacks = []  # (name or "package." prefix, function)
        self.busy_ = set()

    def find_spec(self, name, path=None, target=None):
        wanted = [call for prefix, call in self.callbacks
                  if name == prefix or (prefix.endswith(".") and name.startswith(prefix))]
        if not wanted or name in self.busy_:
            return None
        self.busy_.add(name)
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self.busy_.discard(name)
        if spec is None or spec.loader is None or not hasattr(spec.loader, "exec_module"):
            return spec
        run = spec.loader.exec_module

        def exec_module(module):
            run(module)
            for call in wanted:
                call(module)

        try:
            spec.loader.exec_module = exec_module
        except AttributeError:  # a loader without a __dict__ (builtin, frozen)
            pass
        return spec


finder = Finder()


def call_after_import(name, function):
    """`name`: a module, or a prefix that ends with a dot. Modules that are there are called at once."""
    if finder not in sys.meta_path:
        sys.meta_path.insert(0, finder)
    finder.callbacks.append((name, function))
    for there, module in list(sys.modules.items()):
        if module is not None and (there == name or (name.endswith(".") and there.startswith(name))):
            function(module)
