"""After an experiment: engines are destroyed, everything is dropped, and what stays is named."""

import contextlib
import gc
import sys
import weakref

from . import process_state


class Leftovers:
    """Engines of one experiment, and weak references to what has to go with them."""

    def __init__(self):
        self.engines_ = []
        self.watched_ = []  # (name, weak reference)

    def track(self, engine):
        self.engines_.append(engine)
        self.watch_(type(engine).__name__, engine)

    def watch_(self, name, value):
        with contextlib.suppress(TypeError):
            self.watched_.append((name, weakref.ref(value)))

    def destroy(self):
        """Destroys and drops the engines, complete or not."""
        for engine in self.engines_:
            members = vars(engine)
            module = members.get("_modules", {}).get("module")
            for name, value in (("module", module), ("optimizer", members.get("optimizer"))):
                if value is not None:
                    self.watch_(f"{name} {type(value).__name__}", value)
            if module is not None:
                for name, parameter in list(module.named_parameters())[:3]:
                    self.watch_(f"parameter {name}", parameter)
            for name in ("forward", "backward", "step", "train_batch", "save_checkpoint", "save_16bit_model",
                         "save_fp16_model"):
                members.pop(name, None)
            with contextlib.suppress(Exception):  # an engine that is not complete may fail
                engine.destroy()
        self.engines_.clear()

    def left(self):
        """Names of what is alive still; its tensors give their memory back all the same."""
        if any(reference() is not None for _, reference in self.watched_):
            take_apart()
        alive = [(name, reference()) for name, reference in self.watched_ if reference() is not None]
        for _, value in alive:
            empty(value)
        return [name for name, _ in alive]


def take_apart():
    """Where DeepSpeed failed while it made an optimizer, hooks on gradients hold it and the model.

    Those go through C++, where the collector does not see them, and nobody has the optimizer to
    destroy it. Objects of the imports are set aside (gc.freeze), so what is found is the experiment's.
    """
    for one in gc.get_objects():
        if type(one).__module__.startswith("deepspeed.runtime.") and hasattr(one, "__dict__"):
            if hasattr(type(one), "destroy"):
                with contextlib.suppress(Exception):
                    one.destroy()
            if any(word in type(one).__name__ for word in ("Optimizer", "Engine", "Offload", "Coordinator")):
                vars(one).clear()
    one = None
    gc.collect()


def empty(value):
    torch = sys.modules["torch"]
    module = getattr(value, "module", value)
    if isinstance(module, torch.nn.Module):
        for tensor in (*module.parameters(), *module.buffers()):
            with contextlib.suppress(Exception):
                tensor.grad = None
                tensor.data = torch.empty(0, dtype=tensor.dtype)
    states = getattr(value, "state", None)
    if isinstance(value, torch.optim.Optimizer) and hasattr(states, "clear"):
        states.clear()


def reset_torch(device):
    """Caches of torch that outlive an experiment."""
    torch = sys.modules["torch"]
    compiled = sys.modules.get("torch._dynamo")
    if compiled is not None and getattr(compiled, "reset", None):
        with contextlib.suppress(Exception):
            compiled.reset()
    gc.collect()
    if device == "cuda":
        with contextlib.suppress(Exception):
            torch.cuda.synchronize()
            torch._C._cuda_clearCublasWorkspaces()
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
    process_state.give_back_free_memory()
