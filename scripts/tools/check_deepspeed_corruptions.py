"""Configs that differ from a valid one in one key or in a pair, and what the installed DeepSpeed says
of each: the test data that dstune-mpi's reader is held against. Every key that any known release has is
in it, so that a release is also asked of what others know."""

import contextlib
import copy
import json
import os
import re
import signal
import tempfile
import zlib

PRECISIONS = {"fp32": {}, "bf16": {"bf16": {"enabled": True}}, "fp16": {"fp16": {"enabled": True}}}
ADAMW = {"type": "AdamW", "params": {"lr": 0.0001}}
SCHEDULERS = {"LRRangeTest": {}, "OneCycle": {"cycle_min_lr": 0.0001, "cycle_max_lr": 0.001},
              "WarmupLR": {}, "WarmupDecayLR": {"total_num_steps": 10},
              "WarmupCosineLR": {"total_num_steps": 10}}
# A wrong value of each type for every key, and what a type takes or nearly takes.
EVERY = [None, True, 1, -1, 1.5, "x", "auto", [1], {}]
VALUES = {
    "boolean": [False, 0, 1.0, 2, "yes", "Off", " true", "maybe"],
    "integer": [0, 2.0, -2.0, 1e30, 9223372036854775808, "7", " +7 ", "7.0", "1e3"],
    "number": [0, 2, -0.5, 1e308, "0.5", " 1e-3", "inf", "0.5x"],
    "text": ["", "none", "CPU"],
    "list": [["x"], [], "a,b"],
    "object": [False, [], {"enabled": False}, {"enabled": True}],
    "any": [],
}
# For keys of sections that DeepSpeed reads without looking, and for second names.
SHORT = [None, 1, "x", "auto", {}]
# At other stages and precisions than a key's own: values that its type takes.
VALID = {"boolean": [True, False], "integer": [0, 4], "number": [0, 0.5], "text": [], "list": [],
         "object": [{}], "any": []}
# Words that stand for something.
WORDS = {
    "/optimizer/type": ["Adam", "adam", "ADAMW", "AdamW ", "Adamw8", "Adagrad", "Lion", "Muon", "SGD",
                        "Lamb", "OneBitAdam", "OneBitLamb", "ZeroOneAdam", "MuAdam", "RMSprop"],
    "/scheduler/type": ["warmuplr", "WarmupLr", "StepLR", "LinearLR", "NoSuchLR", "OneCycleLR"],
    "/gradient_allreduce_op": ["mean", "sum", "SUM", "avg", "max"],
    "/communication_data_type": ["fp32", "BF16", "fp8", "int8"],
    "/seq_parallel_communication_data_type": ["fp32", "BF16", "fp8"],
    "/checkpoint/tag_validation": ["Ignore", "WARN", "fail", "no"],
    "/checkpoint/writer/type": ["mock", "python", "slow"],
    "/checkpoint/writer/data_parallel": ["replica", "core"],
    "/data_types/grad_accum_dtype": ["fp32", "bf16", "fp16", "float", "fp8"],
    "/data_types/param_dtype": ["fp32", "bf16", "fp16", "fp8"],
    "/data_types/buffer_dtype": ["fp32", "bf16", "half", "fp8"],
    "/torch_autocast/dtype": ["bfloat16", "fp16", "float33"],
    "/log_level": ["debug", "INFO", "loud"],
    "/scheduler/params/warmup_type": ["log", "linear", "cubic"],
    "/zero_optimization/stage": [0, 1, 2, 3, 4, "2", "3.0", 3.0, "all", "two"],
    "/zero_optimization/allgather_bucket_size": [5, 7.0, "9", 6],
    "/zero_optimization/zenflow/select_strategy": ["step", "hour"],
    "/optimizer/params/betas": [[0.9], [0.9, 0.95], [0.9, 0.95, 0.99], [0.9, "x"], ["auto", "auto"],
                                [1.0, 0.9], [-0.1, 0.9], [0, 0], 0.9],
    "/optimizer/params/weight_decay": [-0.1], "/optimizer/params/lr": [-0.1],
    "/compile/passes": [["z1"], ["z9"]],
    "/data_types/keep_in_fp32_modules": [["lm_head"], []],
}
# How many cases a key gets beside its default: one that is the same in all releases, one that is not, one
# in a section that is not.
SAME, OTHERWISE, INSIDE = 1, 5, 1
WORDS_IN_FULL = {"/optimizer/type": 25}
COMBINATIONS_IN = 3  # one of so many
# Several keys at once, each by its pointer.
COMBINATIONS = [
    {"/bf16/enabled": True, "/fp16/enabled": True},
    {"/bf16/enabled": False, "/bfloat16/enabled": True}, {"/bf16": None, "/bfloat16/enabled": True},
    {"/zero_optimization/cpu_offload": True, "/zero_optimization/offload_optimizer": {}},
    {"/zero_optimization/cpu_offload": False, "/zero_optimization/offload_optimizer": None},
    {"/zero_optimization/cpu_offload": "auto", "/zero_optimization/offload_optimizer": {}},
    {"/zero_optimization/cpu_offload_param": True, "/zero_optimization/offload_param": {}},
    {"/zero_optimization/cpu_offload_param": True, "/zero_optimization/cpu_offload": True},
    {"/zero_optimization/cpu_offload_use_pin_memory": True, "/zero_optimization/offload_param": {}},
    {"/zero_optimization/stage3_gather_fp16_weights_on_model_save": True,
     "/zero_optimization/stage3_gather_16bit_weights_on_model_save": True},
    {"/zero_optimization/stage3_gather_fp16_weights_on_model_save": True,
     "/zero_optimization/gather_16bit_weights_on_model_save": True},
    *({f"/zero_optimization/{name}": value, f"/zero_optimization/stage3_{name}": value}
      for name, value in (("prefetch_bucket_size", 10), ("param_persistence_threshold", 10),
                          ("max_live_parameters", 10), ("allgather_sequential", True))),
    *({"/zero_optimization/reduce_scatter": scatter, "/zero_optimization/stage": stage, pointer: value}
      for scatter in (True, False) for stage in (1, 2, 3)
      for pointer, value in (("/prescale_gradients", True), ("/gradient_predivide_factor", 2.0),
                             ("/communication_data_type", "fp16"))),
    *({"/zero_optimization/stage": stage, "/gradient_allreduce_op": "sum"} for stage in range(4)),
    {"/gradient_allreduce_op": "sum", "/zero_optimization/zenflow": {}},
    {"/gradient_allreduce_op": "sum", "/compile/deepcompile": True},
    *({"/zero_optimization/stage": stage, "/zero_optimization/offload_optimizer":
       {"device": "cpu", "ratio": 0.5}} for stage in (1, 3)),
    {"/zero_optimization/offload_optimizer": {"device": "none", "ratio": 0.5}},
    *({"/zero_optimization/stage": stage, "/bf16/bf16_master_weights_and_grads": True}
      for stage in range(4)),
    {"/bf16/bf16_optimizer_states": True, "/bf16/bf16_master_weights_and_grads": False},
    *({"/managed_gradient_accumulation": False, "/zero_optimization/stage": stage,
       "/zero_optimization/overlap_comm": overlap} for stage in range(4) for overlap in (True, False)),
    {"/amp/enabled": True, "/zero_optimization/stage": 0}, {"/amp/enabled": True},
    {"/amp/opt_level": "O1"}, {"/progressive_layer_drop/theta": 0.5},
    *({"/data_types/grad_accum_dtype": kind, "/zero_optimization/stage": stage}
      for kind in ("fp32", "bf16", "fp16") for stage in range(4)),
    {"/zero_optimization/zero_quantized_gradients": True, "/zero_optimization/stage": 3,
     "/zero_optimization/reduce_scatter": False},
    {"/activation_checkpointing/contiguous_memory_optimization": True,
     "/activation_checkpointing/partition_activations": True},
    {"/activation_checkpointing/contiguous_memory_optimization": True,
     "/activation_checkpointing/partition_activations": True,
     "/activation_checkpointing/number_checkpoints": 4},
    *({"/optimizer/type": "SGD", "/zero_allow_untested_optimizer": tested,
       "/zero_optimization/stage": stage} for tested in (True, False) for stage in (0, 2)),
    *({"/optimizer/type": "SGD", "/zero_optimization/stage": 0, "/optimizer/params/nesterov": True,
       "/optimizer/params/momentum": momentum, "/optimizer/params/dampening": dampening}
      for momentum in (0, 0.9) for dampening in (0, 0.1)),
    {"/optimizer/type": "Adam", "/optimizer/params/adam_w_mode": False},
    {"/optimizer/type": "Adam", "/optimizer/params/adam_w_mode": False,
     "/optimizer/params/torch_adam": True},
    {"/zero_optimization": True, "/allgather_size": 5}, {"/zero_optimization": True},
    {"/zero_optimization": True, "/allgather_size": 6}, {"/zero_optimization": False},
    {"/fp16/enabled": True, "/bf16/enabled": False, "/fp16/loss_scale_window": 0},
    {"/fp16/enabled": True, "/bf16/enabled": False, "/fp16/loss_scale_window": 0,
     "/fp16/loss_scale": 128},
    {"/torch_autocast/enabled": True, "/torch_autocast/dtype": "bfloat16"},
    {"/elasticity": {"enabled": True, "max_train_batch_size": 16, "micro_batch_sizes": [1]}},
    {"/optimizer": {"type": "AdamW"}}, {"/optimizer": {}}, {"/optimizer": {"params": {"lr": 0.1}}},
    {"/scheduler": {"type": "WarmupLR"}}, {"/scheduler": {}}, {"/scheduler": {"params": {}}},
    *({"/scheduler": {"type": kind, "params": {}}} for kind in SCHEDULERS),
    {"/scheduler": {"type": "OneCycle", "params": {"cycle_min_lr": 0.1}}},
    {"/zero_optimization/zenflow": {"topk_ratio": 1.0}}, {"/zero_optimization/zenflow": {"topk": 1}},
    {"/zero_optimization/leaf_module": {"names": "block"}},
    {"/scheduler": {"type": "StepLR", "params": {"step_size": 2}}},
    {"/optimizer/params/fp32_optimizer_states": True}, {"/expert_parallel/enabled": False},
]
# What DeepSpeed says for want of a GPU or of an optional package says nothing of the config.
NOT_THE_CONFIG = ("not been implemented on CPU", "No module named", "GDS currently only supported",
                  "Unable to import", "is not installed", "not supported on CPU", "Install ",
                  "only supports NVIDIA CUDA", "no NVIDIA driver",
                  "must be on supported device", "Please install", "'UniversalParallelInfo' object")


def is_for_want_of_a_gpu(refusal):
    return any(word in refusal.message for word in NOT_THE_CONFIG)


def bases():
    found = {f"z{stage}-{name}": {"train_micro_batch_size_per_gpu": 1, "optimizer": ADAMW,
                                  "zero_optimization": {"stage": stage}, **precision}
             for stage in range(4) for name, precision in PRECISIONS.items()}
    for kind, needed in SCHEDULERS.items():
        found[kind] = {**found["z2-bf16"], "scheduler": {"type": kind, "params": needed}}
    found["torch-adam"] = {**found["z2-bf16"], "optimizer": {
        "type": "AdamW", "params": {"lr": 0.0001, "torch_adam": True}}}
    for kind in ("Lion", "Adagrad", "SGD"):
        found[kind] = {**found["z2-bf16"], "zero_allow_untested_optimizer": True,
                       "optimizer": {"type": kind, "params": {"lr": 0.0001}}}
    return found


def with_values(base, values):
    config = copy.deepcopy(base)
    for pointer, value in values.items():
        *sections, key = pointer[1:].split("/")
        place = config
        for section in sections:
            if not isinstance(place.get(section), dict):
                place[section] = {}
            place = place[section]
        place[key] = value
    return config


def cases(tables):
    """(base, {pointer: value}), none twice: some of every key's, in an order that knows no release."""
    entries = {}
    for table in tables:  # the newest release that has a key says what is tried
        entries.update(table["keys"])
    chosen = {}
    for pointer, base, values in every_case(dict(sorted(entries.items()))):
        mark = json.dumps([base, values])
        chosen.setdefault(pointer, {})[mark] = (base, values)
    for pointer, found in chosen.items():
        # A random order; what lies at the start tells releases apart.
        marks = sorted(found, key=lambda mark: (not is_plain(pointer, *found[mark], entries),
                                                zlib.crc32(mark.encode())))
        yield from (found[mark] for mark in marks[:how_many(pointer, len(marks), tables)])


def is_plain(pointer, base, values, entries):
    """Its default, at the base that has all its values."""
    key = entries.get(pointer)
    return key and base == home_bases(pointer, key)[0] and values == {pointer: plain_value(key)}


def plain_value(key):
    return {"enabled": False} if key["type"] == "object" else key["default"]


def how_many(pointer, count, tables):
    if not pointer:
        return count // COMBINATIONS_IN
    sections = [pointer[:end] for end in range(1, len(pointer)) if pointer[end] == "/"]
    if any(is_otherwise(section, tables) for section in sections):
        return INSIDE
    more = OTHERWISE if is_otherwise(pointer, tables) else SAME
    return 1 + WORDS_IN_FULL.get(pointer, more)


def is_otherwise(pointer, tables):
    return any(table["keys"].get(pointer) != tables[0]["keys"].get(pointer) for table in tables)


def every_case(keys):
    """(pointer, or none for a combination, base, {pointer: value})"""
    for pointer, key in keys.items():
        if pointer.startswith("/zero_optimization/zenflow/"):
            continue  # starts processes; COMBINATIONS have it as a whole
        home, others = home_bases(pointer, key)
        words = WORDS.get(pointer, key.get("choices", []))
        brief = "alias_of" in key or "strict" not in key and pointer.count("/") > 1 and "of" not in key
        plain = plain_value(key)
        for value in ((plain, *SHORT, *words) if brief else (plain, *EVERY, *VALUES[key["type"]], *words)):
            yield pointer, home, {pointer: value}
        for base in others:
            for value in (*VALID[key["type"]], *words):
                yield pointer, base, {pointer: value}
        if key["type"] == "object":
            yield pointer, home, {f"{pointer}/unknown_key": 1}
        elif "strict" in key and "alias_of" not in key:
            yield pointer, home, {f"{pointer}s": key["default"]}
    for values in COMBINATIONS:
        yield "", "z2-bf16", values
        if not any(pointer == "/zero_optimization/stage" for pointer in values):
            yield "", "z3-bf16", values
            yield "", "z1-fp16", values
            yield "", "z0-fp32", values


def home_bases(pointer, key):
    """The base that gets every value, and those that get the valid ones."""
    if pointer.startswith("/zero_optimization"):
        return "z3-bf16", ("z0-fp32", "z1-bf16", "z2-fp16")
    if pointer.startswith("/fp16"):
        return ("z2-fp32" if pointer == "/fp16" else "z2-fp16"), ("z0-fp16", "z3-fp16", "z1-fp32")
    if pointer.startswith(("/bf16", "/bfloat16")):
        return ("z2-bf16" if pointer.startswith("/bf16/") else "z2-fp32"), ("z1-fp32",)
    if pointer.startswith("/optimizer/params/") and "of" in key:
        kinds = {"FusedAdam": "z2-bf16", "torch": "torch-adam", "FusedLion": "Lion"}
        home = key["of"][0]
        return kinds.get(home, home), ("z2-bf16", "torch-adam", "Lion", "Adagrad", "SGD")
    if pointer.startswith("/scheduler/params/"):
        return key["of"][0], tuple(SCHEDULERS)
    if pointer.startswith(("/data_types", "/communication", "/gradient", "/prescale", "/optimizer/type")):
        return "z2-bf16", ("z0-fp32", "z0-bf16", "z1-fp16", "z3-bf16")
    return "z2-bf16", ()


def record(engine, path, tables):
    """Writes the header, then a line for each case: base, set, refused ("config", "engine", "step" or
    null) and DeepSpeed's words. Lines that the file has already stay."""
    all_bases = bases()
    for name, base in all_bases.items():
        refusal = engine.refusal(base)
        if refusal:
            raise SystemExit(f"the base config {name} is refused: {refusal.message}")
    header = {"deepspeed": engine.version, "world_size": engine.world_size, "bases": all_bases}
    lines = recorded(path, header)
    known = {json.dumps([line["base"], line["set"]]) for line in lines}
    undecided = 0
    with working_in_a_scratch_folder():
        for base, values in cases(tables):
            if json.dumps([base, values]) in known:
                continue
            refusal, decided = within_seconds(30, engine.refusal, with_values(all_bases[base], values))
            if not decided or refusal and is_for_want_of_a_gpu(refusal):
                undecided += 1
                continue
            line = {"base": base, "set": values, "refused": refusal.where if refusal else None}
            if refusal:
                line["message"] = re.sub("0x[0-9a-f]+", "0x", refusal.message)[:100]
            lines.append(line)
    path.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in (header, *lines)))
    refused = sum(1 for line in lines if line["refused"])
    print(f"{path}: {len(lines)} configs, {refused} refused; {undecided} undecided without a GPU or an "
          f"optional package, left out")


def recorded(path, header):
    if not path.exists():
        return []
    first, *lines = map(json.loads, path.read_text().splitlines())
    if {**first, "bases": {**header["bases"], **first["bases"]}} != header:
        raise SystemExit(f"{path}: made with another DeepSpeed or other base configs; remove it first")
    return lines


@contextlib.contextmanager
def working_in_a_scratch_folder():
    """Monitors and profilers write where they are started."""
    here = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(here)


def within_seconds(limit, function, *arguments):
    """(result, True), or (None, False) where the limit passes first."""

    class TooLong(BaseException):
        pass

    def stop(number, frame):
        raise TooLong

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(limit)
    try:
        return function(*arguments), True
    except TooLong:
        return None, False
    finally:
        signal.alarm(0)
