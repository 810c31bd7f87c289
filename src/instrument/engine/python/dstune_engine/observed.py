"""Compares what the member says with what the script's training does, in its first steps.

A script that ignores what it is told would train the same in every member, and the search would call
one of them best. Where the default is the member's word, and not the space's, a note is all.
"""

import math
import sys

from . import recompute

MICRO_BATCHES = 3  # of one and the same other length: then it is no padding
TOKENS = ("input_ids", "inputs_embeds", "decoder_input_ids", "tokens")
NO_TOKENS = ("pixel_values", "input_values", "input_features", "images")

# Classes that DeepSpeed makes of a type, by the words in their names.
FAMILIES = ("adamw", "adam", "lamb", "lion", "adagrad", "muon", "sgd", "rmsprop", "adafactor", "adamax", "nadam")
ADAMS = ("adam", "adamw")


def family_of(name):
    text = name.lower()
    return next((family for family in FAMILIES if family in text), text)


def is_of_type(optimizer, wanted):
    """Is this optimizer one that the configuration's type may stand for?"""
    one, other = family_of(type(optimizer).__name__), family_of(wanted)
    return one == other or (one in ADAMS and other in ADAMS)


def values_of(optimizer, name):
    """Values of an argument over the groups: some have none of the weight decay, and schedules change rates."""
    found = [optimizer.defaults.get(name)]
    for group in optimizer.param_groups:
        found += [group.get(name), group.get("initial_lr") if name == "lr" else None]
    return [value for value in found if value is not None]


def is_close(one, other):
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(is_close, one, other))
    try:
        return math.isclose(float(one), float(other), rel_tol=1e-6, abs_tol=1e-12)
    except (TypeError, ValueError):
        return True  # text, a tensor of a schedule: nothing can be said


def length_in(name, tensor):
    """The length of a batch of token sequences; 0: it is none."""
    torch = sys.modules["torch"]
    last = name.replace("'", "").replace("]", "").replace("[", " ").split(" ")[-1]
    if last in NO_TOKENS:
        return 0
    whole = tensor.dtype in (torch.int64, torch.int32) and tensor.dim() == 2
    # Embeddings have a third dimension; several choices a sample have theirs in front of the tokens.
    named = last in TOKENS and (tensor.dim() == 2 or (tensor.dim() == 3 and tensor.dtype.is_floating_point))
    return int(tensor.shape[1]) if (whole or named) and tensor.shape[1] > 1 else 0


class Observed:
    """One experiment's; `stated`: what the space itself says of activation_recompute and sequence_length."""

    def __init__(self, order, stated, refuse, note):
        self.order_ = order
        self.refuse_ = refuse
        self.note_ = note
        self.recompute = recompute.Asked(order, "activation_recompute" in stated, refuse, note)
        self.asks_length_ = "sequence_length" in stated
        self.lengths_ = []
        self.told_ = False

    # The engine, before its first step.

    def made(self, engine, optimizer):
        """`optimizer`: what the script handed over, or None."""
        if self.order_.get("own_model"):
            return
        if optimizer is not None:
            self.look_at_optimizer_(getattr(engine, "basic_optimizer", None))
        self.look_at_types_(engine)

    def look_at_optimizer_(self, made):
        wanted = self.order_["ds_config"].get("optimizer")
        if not isinstance(wanted, dict) or not wanted.get("type") or not hasattr(made, "param_groups"):
            return
        mend = ("DeepSpeed ignores the configuration's optimizer then; hand over none, or take the object optimizer "
                "out of the configuration")
        kind = type(made).__name__
        if not is_of_type(made, wanted["type"]):
            self.refuse_(f"the script hands an optimizer of its own, {kind}, to deepspeed.initialize, where the "
                         f"configuration has {wanted['type']}: {mend}")
        for name in ("lr", "betas", "eps", "weight_decay"):
            value = wanted.get("params", {}).get(name, "auto")
            found = values_of(made, name)
            if value != "auto" and found and not any(is_close(value, one) for one in found):
                self.refuse_(f"the script hands an optimizer of its own to deepspeed.initialize, {kind} with {name} "
                             f"{found[-1]!r}, where the configuration has {value!r}: {mend}")

    def look_at_types_(self, engine):
        torch = sys.modules["torch"]
        config = self.order_["ds_config"]
        enabled = lambda name: isinstance(config.get(name), dict) and config[name].get("enabled") is True
        if enabled("torch_autocast") or not (enabled("bf16") or enabled("fp16")):
            return
        wanted = torch.bfloat16 if enabled("bf16") else torch.float16
        count = {}
        for one in engine.module.parameters():
            if one.is_floating_point():
                count[one.dtype] = count.get(one.dtype, 0) + int(getattr(one, "ds_numel", None) or one.numel())
        found = max(count, key=count.get, default=wanted)
        if found != wanted:
            self.refuse_(f"the engine's parameters are of {found}, and the configuration says {wanted}: the script "
                         "changes the model's type")

    # Its first steps.

    def start(self):
        self.recompute.start()

    def batch(self, name, tensor):
        """The input of a micro-step."""
        if self.told_ or not self.asks_length_:
            return
        found = length_in(name, tensor)
        wanted = self.order_["sequence_length"]
        # Ranks may share a sequence; inputs may lack the last token, or have the label of the last.
        shared = int(self.order_["ds_config"].get("sequence_parallel_size") or 1)
        if found == 0 or abs(found * shared - wanted) <= 1 or abs(found - wanted) <= 1:
            return
        self.lengths_.append(found)
        mend = (f"and sequence_length is {wanted}: let the script take its length from the environment variable "
                "DSTUNE_SEQUENCE_LENGTH, or leave dstune.sequence_length out")
        if found > wanted:
            self.refuse_(f"the script's sequences have {found} tokens ({name or 'the input'}), {mend}")
        if len(self.lengths_) < MICRO_BATCHES:
            return
        self.told_ = True
        if len(set(self.lengths_)) == 1:
            self.refuse_(f"the script's sequences have {found} tokens in each batch ({name or 'the input'}), {mend}")
        self.note_(f"the script's sequences are shorter than sequence_length, {wanted}: {min(self.lengths_)} to "
                   f"{max(self.lengths_)} tokens; padding them to that length makes steps alike")

    def first_step(self):
        self.recompute.judge()

    def stop(self):
        self.recompute.stop()
