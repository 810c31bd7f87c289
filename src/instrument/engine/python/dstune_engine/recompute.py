"""Sees whether the first step recomputes activations, and how a model of transformers is told to.

A checkpoint is seen by the functions of torch and DeepSpeed that make one, and by what it does: modules
run a second time, during backward.
"""

import sys

from .patches import Patches

# Of the calls of modules without children: a loss in parts recomputes a few, a model its blocks.
MIN_SHARE = 0.25

LINE = 'if os.environ.get("DSTUNE_ACTIVATION_RECOMPUTE") {sign} "none": {call}'


def is_on(model):
    """Do modules of transformers checkpoint?"""
    return any(getattr(module, "gradient_checkpointing", False) is True for module in model.modules())


def switch(model, on):
    """The Trainer's own way, for a model of transformers, in peft too. Returns what a script lacks, or ""."""
    if not getattr(model, "supports_gradient_checkpointing", False):
        return ""
    names = [f"{kind}_checkpointing_{'enable' if on else 'disable'}" for kind in ("activation", "gradient")]
    call = next((name for name in names if callable(getattr(model, name, None))), None)
    if call is None:
        return ""
    getattr(model, call)()
    if on:
        config = getattr(model, "config", None)
        if getattr(config, "use_cache", False):
            config.use_cache = False  # of no use in training, and in the way of it
        if not all(one.requires_grad for one in model.parameters()) and hasattr(model, "enable_input_require_grads"):
            model.enable_input_require_grads()  # as peft does: no gradient reaches the blocks otherwise
    return f"model.{call}()"


class Counter:
    """Counts during one step; stop() ends it."""

    def __init__(self):
        self.checkpoints_ = 0
        self.calls_ = 0  # of modules without children, outside of backward
        self.again_ = 0  # and inside
        self.patches_ = Patches()
        self.hook_ = None

    def start(self):
        torch = sys.modules["torch"]
        in_torch = sys.modules.get("torch.utils.checkpoint")
        in_deepspeed = sys.modules.get("deepspeed.runtime.activation_checkpointing.checkpointing")
        for module, name in ((in_torch, "_checkpoint_without_reentrant_generator"),
                             (in_deepspeed, "non_reentrant_checkpoint")):
            if hasattr(module, name):
                self.patches_.wrap(module, name, self.made_)
        for module in (in_torch, in_deepspeed):
            function = getattr(module, "CheckpointFunction", None)
            if function is not None:
                original = function.apply
                self.patches_.set(function, "apply", staticmethod(self.counted_(original)))
        inside = torch._C._current_graph_task_id

        def called(module, _):
            if next(module.children(), None) is not None:
                return
            if inside() == -1:
                self.calls_ += 1
            else:
                self.again_ += 1

        self.hook_ = torch.nn.modules.module.register_module_forward_pre_hook(called)

    def made_(self, original, *args, **kwargs):
        self.checkpoints_ += 1
        return original(*args, **kwargs)

    def counted_(self, original):
        def apply(*args, **kwargs):
            self.checkpoints_ += 1
            return original(*args, **kwargs)
        return apply

    def stop(self):
        self.patches_.undo()
        if self.hook_ is not None:
            self.hook_.remove()
            self.hook_ = None

    def some(self):
        """Was anything computed again?"""
        return self.checkpoints_ > 0 or self.again_ > 0

    def much(self):
        """Was more computed again than a part, as a loss's?"""
        if self.calls_ == 0:
            return self.some()
        return self.again_ >= MIN_SHARE * self.calls_


class Asked:
    """A member's word on recompute, against what the script does."""

    def __init__(self, order, is_stated, refuse, note):
        self.mode_ = order.get("recompute") or "none"
        self.is_stated_ = is_stated or self.mode_ != "none"
        self.refuse_ = refuse
        self.note_ = note
        self.counter_ = None
        self.lines = []  # that a separate launch of this member needs in the script

    def before(self, model):
        """Models of transformers are switched before their engine is made."""
        if not self.is_stated_ or self.mode_ == "selective" or not hasattr(model, "modules"):
            return
        wanted = self.mode_ == "block"
        if is_on(model) == wanted:
            return
        call = switch(model, wanted)
        if not call:
            return
        line = LINE.format(sign="!=" if wanted else "==", call=call)
        self.note_(f"activation_recompute is {self.mode_}, and the script does not ask for it: the model of "
                   f"transformers was switched; a separate launch of the script needs {call}, and the script for "
                   f"both: {line}")
        self.lines.append(call)

    def start(self):
        self.counter_ = Counter()
        self.counter_.start()

    def stop(self):
        if self.counter_ is not None:
            self.counter_.stop()

    def judge(self):
        """The look after the first step."""
        self.stop()
        counter, self.counter_ = self.counter_, None
        if counter is None:
            return
        if self.mode_ == "none":
            if not counter.much():
                return
            if not self.is_stated_:
                self.note_("the script recomputes activations, and the space does not state "
                           "dstune.activation_recompute: predictions are for none")
                return
            self.refuse_("the script recomputes activations in its first step, and activation_recompute is none: its "
                         "members would all train the same; write into the script: "
                         + LINE.format(sign="!=", call="model.gradient_checkpointing_enable()")
                         + ", or leave dstune.activation_recompute out")
        elif not counter.some():
            self.refuse_(f"the script recomputes nothing in its first step, and activation_recompute is {self.mode_}: "
                         "its members would all train the same; write into the script: "
                         + f'if os.environ.get("DSTUNE_ACTIVATION_RECOMPUTE") == "{self.mode_}": '
                         + ("model.gradient_checkpointing_enable()" if self.mode_ == "block" else
                            "call the attention by torch.utils.checkpoint.checkpoint")
                         + ", or leave dstune.activation_recompute out")
