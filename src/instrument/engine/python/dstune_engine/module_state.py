"""Module state of DeepSpeed and of torch: taken once after the import, put back after each experiment.

DeepSpeed keeps groups, meshes, contexts, caches, counters and stacks of modules in globals of modules
and members of classes, which `engine.destroy()` leaves. A list of them would age; so all of them are
compared with what they were right after their module's import.
"""

import collections
import functools
import gc
import sys
import types

CONTAINERS = (dict, list, set, collections.deque)
PLAIN = (int, float, str, bool, tuple, type(None), *CONTAINERS)
# Globals that stay: loaded operators and the accelerator do not belong to an experiment.
KEPT = ("deepspeed.accelerator", "deepspeed.ops.op_builder", "deepspeed.git_version_info")


def same(container, content):
    """By identity: values may be tensors, which do not compare."""
    if isinstance(container, set):
        return container == content
    if isinstance(container, dict):
        return (len(container) == len(content)
                and all(key in container and container[key] is value for key, value in content.items()))
    return len(container) == len(content) and all(one is other for one, other in zip(container, content))


def refill(container, content):
    if not same(container, content):
        container.clear()
        (container.update if isinstance(container, (dict, set)) else container.extend)(content)


def functions_of(owner):
    """Functions of a module or class, those inside decorators' wrappers too."""
    waiting = list(vars(owner).values())
    seen = set()
    while waiting:
        value = waiting.pop()
        value = getattr(value, "__func__", value)  # static and class methods
        if isinstance(value, types.FunctionType) and value not in seen:
            seen.add(value)
            waiting += [cell.cell_contents for cell in value.__closure__ or () if cell_is_filled(cell)]
    return seen


def cell_is_filled(cell):
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False


class ModuleState:
    def __init__(self):
        self.taken_ = {}  # module name -> [(module or class, {name: (value, copy of its content or None)})]
        self.defaults_ = []  # containers that are default arguments, with copies: counters hide in them
        self.torch_ = []  # (owner, {name: function})
        self.caches_ = []
        self.modules_searched_ = 0

    def take(self, module):
        name = module.__name__
        if name.startswith(KEPT) or name in self.taken_:
            return
        owners = [(module, {key: (value, self.content_(value)) for key, value in vars(module).items()
                            if not key.startswith("__")
                            and not isinstance(value, (types.ModuleType, types.FunctionType, type))})]
        # Classes count, too: ids of stage 3's parameters come from one, and have to agree between ranks.
        for kind in [value for value in vars(module).values() if isinstance(value, type)]:
            if kind.__module__ == name:
                owners.append((kind, {key: (value, self.content_(value)) for key, value in vars(kind).items()
                                      if not key.startswith("__") and type(value) in PLAIN}))
        for owner in [module] + [kind for kind, _ in owners[1:]]:
            for function in functions_of(owner):
                for value in function.__defaults__ or ():
                    if isinstance(value, CONTAINERS):
                        self.defaults_.append((value, value.copy()))
        self.taken_[name] = owners

    def take_torch(self):
        """Functions of torch that DeepSpeed replaces while zero.Init is active, and in stage 3."""
        torch = sys.modules["torch"]
        self.torch_.clear()
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
        for owners in self.taken_.values():
            for owner, state in owners:
                self.put_back_(owner, state)
        for value, content in self.defaults_:
            refill(value, content)
        for owner, functions in self.torch_:
            names = vars(owner)
            for key, value in functions.items():
                if names.get(key) is not value:
                    setattr(owner, key, value)
        self.clear_caches_()

    @staticmethod
    def put_back_(owner, state):
        names = vars(owner)
        for key, (value, content) in state.items():
            if key not in names or names[key] is not value:
                setattr(owner, key, value)
            if content is not None:
                refill(value, content)

    def clear_caches_(self):
        """functools caches of DeepSpeed: one on a method keeps every engine of stage 3."""
        if len(sys.modules) != self.modules_searched_:
            self.modules_searched_ = len(sys.modules)
            known = set(map(id, self.caches_))
            for one in gc.get_objects():
                # By its type alone: isinstance() asks what a weak proxy stands for, which may be gone.
                if issubclass(type(one), functools._lru_cache_wrapper) and id(one) not in known:
                    if str(getattr(one, "__module__", "")).startswith("deepspeed."):
                        self.caches_.append(one)
        for cache in self.caches_:
            cache.cache_clear()
