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

# DeepSpeed's default was 0 before 0.19.6, and stands in each configuration; the argument's is 1.0.
OTHER_CLIPPING = ("the configuration's gradient_clipping replaces max_grad_norm of TrainingArguments; the Trainer of a "
                  "separate launch refuses to start unless both are the same: map it by autotuning.arg_mappings, "
                  '"gradient_clipping": "--max_grad_norm"')


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
    if order.get("recompute") == "block":
        arguments.gradient_checkpointing = True
    elif getattr(arguments, "gradient_checkpointing", False) and order.get("recompute") == "none":
        note("TrainingArguments ask for gradient_checkpointing; it stays on although the experiment says none")
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


def hook_arguments(module):
    """`transformers.training_args` was imported."""
    kind = module.TrainingArguments
    original = kind.__post_init__

    def __post_init__(self, *args, **kwargs):
        if current is not None:
            order, hooks = current
            if not self.deepspeed:
                hooks.note("the script's TrainingArguments name no DeepSpeed configuration; it gets the experiment's")
            fill(self, order, hooks.note)
            hooks.filled_config = True
        original(self, *args, **kwargs)

    if not hasattr(original, "dstune_"):
        __post_init__.dstune_ = True
        kind.__post_init__ = __post_init__


def install():
    call_after_import("transformers.training_args", hook_arguments)


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
