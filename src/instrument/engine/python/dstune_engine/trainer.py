"""Hugging Face's Trainer, unchanged: the configuration goes in where TrainingArguments read it.

Values that the configuration states replace the arguments', since the Trainer refuses a
configuration that says otherwise. accelerate's shared state is reset after each experiment.
"""

import copy
import sys

from .after_import import call_after_import

current = None  # (order, hooks) of the experiment that runs


def value_at(config, path):
    for key in path.split("."):
        config = config.get(key) if isinstance(config, dict) else None
    return None if config == "auto" else config


# key of the configuration -> argument
SAME = {
    "gradient_clipping": "max_grad_norm",
    "optimizer.params.lr": "learning_rate",
    "optimizer.params.eps": "adam_epsilon",
    "optimizer.params.weight_decay": "weight_decay",
    "scheduler.params.warmup_max_lr": "learning_rate",
    "scheduler.params.warmup_num_steps": "warmup_steps",
}

# A launch on CPUs has to say one of these: accelerate counts no ranks otherwise, from 1.13 on.
ON_CPU = ("use_cpu", "no_cuda")

# Arguments that a separate launch needs as the experiment has them.
LAUNCHED = ("per_device_train_batch_size", "gradient_accumulation_steps", *sorted(set(SAME.values())), "adam_beta1",
            "adam_beta2", "bf16", "fp16", "gradient_checkpointing", *ON_CPU)

LONGER = ("the Trainer's arguments (max_steps, num_train_epochs) end the training before the experiment had enough "
          "steps: it went on; the rate's schedule stays that of the arguments")
ENDLESS = 1 << 40

# DeepSpeed's default was 0 before 0.19.6, and stands in each configuration; the argument's is 1.0.
OTHER_CLIPPING = ("the configuration's gradient_clipping replaces max_grad_norm of TrainingArguments; a separate "
                  "launch needs the same in both, and cmd_optimal.txt has it where the script parses its arguments")


def set_recompute(arguments, order, note):
    """Newer versions have two names, of which the one that is set first counts."""
    names = [name for name in ("activation_checkpointing", "gradient_checkpointing") if hasattr(arguments, name)]
    asked = any(getattr(arguments, name) for name in names)
    if order.get("recompute") == "block":
        wanted = True
    elif asked and "activation_recompute" in order["stated"] and order.get("recompute") == "none":
        wanted = False
    else:
        if asked and order.get("recompute") == "none":
            note("TrainingArguments ask for gradient_checkpointing; it stays on, since the space does not state "
                 "dstune.activation_recompute")
        return
    for name in names:
        setattr(arguments, name, wanted)


def fill(arguments, order, note):
    """Arguments of the Trainer as the experiment needs them."""
    config = copy.deepcopy(order["ds_config"])
    arguments.per_device_train_batch_size = order["micro_batch"]
    arguments.gradient_accumulation_steps = order["accumulation_steps"]
    arguments.auto_find_batch_size = False
    for path, name in SAME.items():
        value = value_at(config, path)
        if value is not None and hasattr(arguments, name):
            if path == "gradient_clipping" and value != getattr(arguments, name):
                note(OTHER_CLIPPING)
            setattr(arguments, name, value)
    betas = value_at(config, "optimizer.params.betas")
    if betas is not None:
        arguments.adam_beta1, arguments.adam_beta2 = betas
    for section, other in (("bf16", "fp16"), ("fp16", "bf16")):
        enabled = value_at(config, section + ".enabled")
        if enabled is not None:
            setattr(arguments, section, bool(enabled))
            if enabled and value_at(config, other + ".enabled") is None:
                setattr(arguments, other, False)
    if value_at(config, "scheduler.params.total_num_steps") is not None:
        config["scheduler"]["params"]["total_num_steps"] = "auto"
    set_recompute(arguments, order, note)
    if order["device"] == "cpu":
        for name in ON_CPU:
            if hasattr(arguments, name):
                setattr(arguments, name, True)
                break
    if getattr(arguments, "dataloader_num_workers", 0):
        note(f"the Trainer asks for {arguments.dataloader_num_workers} loader processes; it runs without them")
    quiet = {"dataloader_num_workers": 0, "dataloader_prefetch_factor": None, "dataloader_persistent_workers": False,
             "save_strategy": "no", "eval_strategy": "no", "evaluation_strategy": "no", "report_to": [],
             "load_best_model_at_end": False, "push_to_hub": False, "disable_tqdm": True, "eval_on_start": False,
             "save_safetensors": True}
    for name, value in quiet.items():
        if hasattr(arguments, name):
            setattr(arguments, name, value)
    arguments.deepspeed = config


def is_from_command_line():
    """True where a parser of transformers makes the arguments, and not the script itself."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename.endswith("hf_argparser.py"):
            return True
        frame = frame.f_back
    return False


def note_launch(arguments, before, hooks):
    """Records which arguments a separate launch has to state; copies that packages make of them have them already."""
    launch = hooks.launch
    changed = {name: getattr(arguments, name) for name in LAUNCHED
               if hasattr(arguments, name) and getattr(arguments, name) != before.get(name)}
    if not launch.arguments:
        launch.are_words = is_from_command_line()
    launch.arguments.update(changed)
    if not launch.are_words and changed:
        words = ", ".join(f"{name}={value!r}" for name, value in changed.items())
        hooks.note("the script makes its TrainingArguments itself, and the run has others than it says; a separate "
                   f"launch needs them there: {words}")


def hook_arguments(module):
    """`transformers.training_args` was imported."""
    kind = module.TrainingArguments
    original = kind.__post_init__

    def __post_init__(self, *args, **kwargs):
        if current is not None:
            order, hooks = current
            if not self.deepspeed:
                hooks.note("the script's TrainingArguments name no DeepSpeed configuration; it gets the experiment's")
            before = {name: getattr(self, name) for name in LAUNCHED if hasattr(self, name)}
            fill(self, order, hooks.note)
            note_launch(self, before, hooks)
            hooks.filled_config = True
        original(self, *args, **kwargs)

    if not hasattr(original, "dstune_"):
        __post_init__.dstune_ = True
        kind.__post_init__ = __post_init__


def hook_loop(module):
    """`transformers.trainer` was imported: its loop has no end, and its schedule has."""
    kind, name = module.Trainer, "set_initial_training_values"
    original = getattr(kind, name, None)
    if original is None or hasattr(original, "dstune_"):
        return

    def set_initial_training_values(self, *args, **kwargs):
        epochs, *others = original(self, *args, **kwargs)
        if current is not None:
            current[1].trainer_steps = others[-1]
            epochs = max(epochs, ENDLESS)
        return (epochs, *others)

    set_initial_training_values.dstune_ = True
    kind.set_initial_training_values = set_initial_training_values


def hook_begin(module):
    """`transformers.trainer_callback` was imported."""
    kind = module.CallbackHandler
    original = kind.on_train_begin
    if hasattr(original, "dstune_"):
        return

    def on_train_begin(self, args, state, control, *others, **kwargs):
        result = original(self, args, state, control, *others, **kwargs)
        if current is not None and current[1].trainer_steps:
            state.max_steps = max(state.max_steps, ENDLESS)
        return result

    on_train_begin.dstune_ = True
    kind.on_train_begin = on_train_begin


def install():
    call_after_import("transformers.training_args", hook_arguments)
    call_after_import("transformers.trainer", hook_loop)
    call_after_import("transformers.trainer_callback", hook_begin)


def reset():
    """Shared state of accelerate and transformers."""
    state = sys.modules.get("accelerate.state")
    if state is not None:
        state.AcceleratorState._reset_state(True)
        state.PartialState._reset_state()
        state.GradientState._reset_state()
    integration = sys.modules.get("transformers.integrations.deepspeed")
    if integration is not None:
        integration.unset_hf_deepspeed_config()
