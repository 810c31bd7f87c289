"""Loops of accelerate: its plugin takes the experiment's configuration, and its state counts the ranks."""

import copy
import sys

from .after_import import call_after_import

current = None  # (order, hooks) of the experiment that runs

COUNTS_BY_CPU = (1, 13)  # from here on ranks of CPUs are counted where `cpu` is asked for, only
LINE = "from accelerate import PartialState; PartialState(cpu=True)  # before Accelerator()"


def version():
    text = getattr(sys.modules.get("accelerate"), "__version__", "0.0")
    return tuple(int(part) if part.isdigit() else 0 for part in text.split(".")[:2])


def hook_plugin(module):
    """`accelerate.utils.dataclasses` was imported."""
    kind = module.DeepSpeedPlugin
    original = kind.__post_init__
    if hasattr(original, "dstune_plugin_"):
        return

    def __post_init__(self, *args, **kwargs):
        if current is not None and not current[1].filled_config:
            order, hooks = current
            self.hf_ds_config = copy.deepcopy(order["ds_config"])
            hooks.filled_config = True
        original(self, *args, **kwargs)

    __post_init__.dstune_ = __post_init__.dstune_plugin_ = True
    kind.__post_init__ = __post_init__


def hook_state(module):
    """`accelerate.state` was imported."""
    kind = module.PartialState
    original = kind.__init__
    if hasattr(original, "dstune_"):
        return

    def __init__(self, cpu=False, **kwargs):
        if current is not None and not cpu and not kind._shared_state:
            order, hooks = current
            if order["device"] == "cpu":
                cpu = True
                if version() >= COUNTS_BY_CPU and order["group_size"] > 1:
                    hooks.note("accelerate counts ranks of CPUs only if its state is made for them. It was here; a "
                               f"separate launch needs in the script: {LINE}")
                    hooks.launch.lines.append(LINE)
        original(self, cpu, **kwargs)

    __init__.dstune_ = True
    kind.__init__ = __init__


def install():
    call_after_import("accelerate.utils.dataclasses", hook_plugin)
    call_after_import("accelerate.state", hook_state)


def why_not_deepspeed():
    """A further reason where a script never came to deepspeed.initialize."""
    state = sys.modules.get("accelerate.state")
    shared = getattr(getattr(state, "AcceleratorState", None), "_shared_state", None) or {}
    if shared and "DEEPSPEED" not in str(shared.get("distributed_type", "")):
        return ("; accelerate's state does not use DeepSpeed: it does not with Accelerator(cpu=True) or "
                "ACCELERATE_USE_CPU")
    return ""
