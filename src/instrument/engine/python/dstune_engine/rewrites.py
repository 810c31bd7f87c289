"""Follows what frameworks do to a configuration on its way from TrainingArguments to deepspeed.initialize.

They fill in "auto" and rewrite some keys by themselves, in a separate launch as well: such a value is
no change of the script's. Who else changed a key is told by looks at the configuration before and
after each of the frameworks' functions that write into it.
"""

import copy
import dataclasses
import sys

from .after_import import call_after_import


@dataclasses.dataclass(frozen=True)
class Rewrite:
    """A key that a framework writes although the configuration states it."""

    key: str
    framework: str
    keeps: str  # whose value reaches the engine: "theirs", as in a separate launch, or "ours"
    why: str


REWRITES = (
    Rewrite("steps_per_print", "accelerate", "theirs", "DeepSpeedPlugin writes infinity: the framework logs itself"),
    Rewrite("train_batch_size", "accelerate", "theirs", "sequence parallelism: the plugin counts the groups' batches"),
    Rewrite("scheduler/params/total_num_steps", "transformers", "ours", "the Trainer counts the steps of its loop"),
    Rewrite("scheduler/params/warmup_num_steps", "transformers", "ours", "the Trainer makes it one where it is zero"),
    Rewrite("scheduler/params/warmup_max_lr", "transformers", "ours", "the Trainer fills in its learning_rate"),
    Rewrite("optimizer/params/lr", "transformers", "ours", "the Trainer fills in its learning_rate"),
    Rewrite("zero_allow_untested_optimizer", "accelerate", "theirs", "an optimizer of the script's is one"),
)
BY_KEY = {rewrite.key: rewrite for rewrite in REWRITES}

MISSING = object()


def flat(config, place=""):
    """{"zero_optimization/stage": 3, ...}; an empty object is a value."""
    found = {}
    for key, value in config.items():
        where = f"{place}/{key}" if place else str(key)
        if isinstance(value, dict) and value:
            found.update(flat(value, where))
        else:
            found[where] = value
    return found


def same(one, other):
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


def differences(before, after):
    """Keys that differ; what was "auto", or is so now, was not stated."""
    before, after = flat(before), flat(after)
    found = []
    for key in [*before, *(key for key in after if key not in before)]:
        one, other = before.get(key, MISSING), after.get(key, MISSING)
        is_empty = (one == {} and any(name.startswith(key + "/") for name in after)) or (
            other == {} and any(name.startswith(key + "/") for name in before))
        if one != "auto" and not same(one, other) and not is_empty:
            found.append(key)
    return found


def put(config, key, value):
    *path, last = key.split("/")
    for part in path:
        config = config.setdefault(part, {})
    config[last] = value


class Looks:
    """Who gave which key of one experiment's configuration another value.

    Frameworks copy configurations: a value that is seen again is its first writer's.
    """

    def __init__(self, ours):
        self.ours_ = copy.deepcopy(ours)
        self.writers_ = {}  # (key, value): who
        self.depth = 0  # of calls of frameworks' functions in each other

    def look(self, config, who):
        """Values that nobody has written before are of `who`."""
        if not isinstance(config, dict):
            return
        values = flat(config)
        for key in differences(self.ours_, config):
            self.writers_.setdefault((key, repr(values.get(key, MISSING))), who)

    def writer(self, key, config):
        return self.writers_.get((key, repr(flat(config).get(key, MISSING))), script_or_package())


current = None  # the Looks of the experiment that runs


def script_or_package():
    """Who runs between the frameworks' functions."""
    return "the script or trl" if "trl" in sys.modules else "the script"


def watch(kind, name, framework, config_of):
    """Wraps the method `name`, which may write into the configuration `config_of(self)`."""
    original = getattr(kind, name, None)
    if original is None or hasattr(original, "dstune_"):
        return

    def watched(self, *args, **kwargs):
        looks = current
        if looks is None:
            return original(self, *args, **kwargs)
        if looks.depth == 0:  # else a framework's function has called this one
            looks.look(config_of(self), script_or_package())
        looks.depth += 1
        try:
            return original(self, *args, **kwargs)
        finally:
            looks.depth -= 1
            looks.look(config_of(self), framework)

    watched.dstune_, watched.__wrapped__ = True, original
    watched.__name__, watched.__doc__ = name, original.__doc__
    setattr(kind, name, watched)


def plugin_config(plugin):
    return getattr(getattr(plugin, "hf_ds_config", None), "config", None)


def watch_accelerate(module):
    """`accelerate.utils.dataclasses` was imported."""
    for name in ("__post_init__", "set_mixed_precision", "deepspeed_config_process", "fill_match"):
        watch(module.DeepSpeedPlugin, name, "accelerate", plugin_config)


def watch_transformers(module):
    """`transformers.integrations.deepspeed` was imported."""
    for name in ("trainer_config_process", "trainer_config_finalize"):
        watch(module.HfTrainerDeepSpeedConfig, name, "transformers", lambda config: getattr(config, "config", None))


def install():
    call_after_import("accelerate.utils.dataclasses", watch_accelerate)
    call_after_import("transformers.integrations.deepspeed", watch_transformers)


def settled(ours, given, looks):
    """(configuration for the engine, notes, [(key, who)] of changes that are none of the frameworks')."""
    config, notes, foreign = given, [], []
    looks.look(given, script_or_package())
    stated = flat(ours)
    for key in differences(ours, given):
        rewrite = BY_KEY.get(key)
        if rewrite is not None and rewrite.keeps == "theirs":
            continue
        who = looks.writer(key, given)
        if rewrite is not None and key in stated:
            if key.endswith("total_num_steps"):
                notes.append(f"the configuration's {key} is {stated[key]!r}, and the Trainer counts "
                             f"{flat(given).get(key)!r}; a separate launch refuses that: write \"auto\"")
            put(config, key, stated[key])
        elif key in stated:
            foreign.append((key, who))
        elif who not in ("accelerate", "transformers"):
            notes.append(f"{who} adds {key} to the configuration, which does not state it; so does a separate launch")
        elif key in ("bf16/enabled", "fp16/enabled") and flat(given).get(key):
            notes.append(f"{who} adds {key} to the configuration, as the script's arguments say: state it there")
    return config, notes, foreign


# DeepSpeed fails on "auto" here. It takes its default in sections that it checks by itself.
FAILS_UNDER = ("optimizer", "scheduler")
ALLOWED = ("data_types/keep_in_fp32_modules",)

# Words on what to write where nobody fills it in.
INSTEAD = {
    "train_batch_size": "leave it out: the job makes it of micro-batch, accumulation and ranks",
    "gradient_clipping": "1.0 is the Trainer's value, and 0 clips nothing",
    "optimizer/params/lr": "the rate of the training, e.g. 5e-5",
    "optimizer/params/betas": "[0.9, 0.999] is AdamW's default",
    "optimizer/params/eps": "1e-8 is AdamW's default",
    "optimizer/params/weight_decay": "0 is the Trainer's value",
    "scheduler/params/warmup_min_lr": "0 is the Trainer's value",
    "scheduler/params/warmup_max_lr": "the optimizer's lr",
    "scheduler/params/warmup_num_steps": "a number of steps, 1 or more",
    "scheduler/params/total_num_steps": "the number of the training's optimizer steps",
}


def fill_from(ours, given):
    """`ours` with the values that the script filled in where it says "auto"."""
    filled = copy.deepcopy(ours)
    theirs = flat(given) if isinstance(given, dict) else {}
    for key, value in flat(ours).items():
        if value == "auto" and theirs.get(key, "auto") != "auto":
            put(filled, key, theirs[key])
    return filled


def unfilled(config):
    """(keys on which DeepSpeed fails, keys for which it takes its default) of those that are "auto"."""
    fails, defaults = [], []
    for key, value in flat(config).items():
        if value != "auto" or key in ALLOWED:
            continue
        first, slash, _ = key.partition("/")
        (fails if not slash or first in FAILS_UNDER else defaults).append(key)
    return fails, defaults


def unfilled_refusal(keys):
    told = "; ".join(f"{key} ({INSTEAD[key]})" if key in INSTEAD else key for key in keys)
    return (f'"auto" is left in the configuration at {told}. Hugging Face\'s Trainer and accelerate fill it in, which '
            "did not happen here: write a value in its place, or let the script fill it in before it calls "
            "deepspeed.initialize")
