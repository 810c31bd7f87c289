"""Module state of DeepSpeed and of torch: taken once after the import, put back after each experiment.

DeepSpeed keeps groups, meshes, contexts, caches and stacks of modules in module globals, which
`engine.destroy()` leaves. A list of them would age; so every global of every module is compared
with what it was right after the module's import.
"""

import collections
import functools
import gc
import sys
import types

CONTAINERS = (dict, list, set, collections.deque)
# Globals that stay: loaded operators and the accelerator do not belong to an experiment.
KEPT = ("deepspeed.accelerator", "deepspeed.ops.op_builder", "deepspeed.git_version_info")


class ModuleState:
    def __init__(self):
        self.taken_ = {}  # module name -> {global: (value, copy of its content or None)}
        self.torch_ = []  # (owner, {name: function})
        self.caches_ = []
        self.modules_searched_ = 0

    def take(self, module):
        name = module.__name__
        if name.startswith(KEPT):
            return
        state = {}
        for key, value in vars(module).items():
            if key.startswith("__") or isinstance(value, (types.ModuleType, types.FunctionType, type)):
                continue
            state[key] = (value, self.content_(value))
        self.taken_[name] = state

    def take_torch(self):
        """Functions of torch that DeepSpeed replaces while zero.Init is active, and in stage 3."""
        torch = sys.modules["torch"]
        for owner in (torch, torch.nn.functional, torch.nn.Module, torch.Tensor, torch.distributed,
                      torch.nn.Linear, torch.nn.Embedding):
            functions = {key: value for key, value in vars(owner).items()
                         if callable(value) and not isinstance(value, type)}
            self.torch_.append((owner, functions))

    @staticmethod
    def content_(value):
        if type(value).__module__.startswith(("builtins", "collections")) and isinstance(value, CONTAINERS):
            return value.copy()
        return None

    def restore(self):
        for name, state in self.taken_.items():
            module = sys.modules.get(name)
            if module is None:
                continue
            names = vars(module)
            for key, (value, content) in state.items():
                if key not in names or names[key] is not value:
                    setattr(module, key, value)
                if content is not None and value != content:
                    value.clear()
                    (value.update if isinstance(value, (dict, set)) else value.extend)(content)
        for owner, functions in self.torch_:
            names = vars(owner)
            for key, value in functions.items():
                if names.get(key) is not value:
                    setattr(owner, key, value)
        self.clear_caches_()

    def clear_caches_(self):
        """functools caches of DeepSpeed: one on a method keeps every engine of stage 3."""
        if len(sys.modules) != self.modules_searched_:
            self.modules_searched_ = len(sys.modules)
            known = set(map(id, self.caches_))
            for one in gc.get_objects():
                if isinstance(one, functools._lru_cache_wrapper) and id(one) not in known:
                    if str(getattr(one, "__module__", "")).startswith("deepspeed."):
                        self.caches_.append(one)
        for cache in self.caches_:
            cache.cache_clear()
