"""Every key that the installed DeepSpeed reads from a config, with its type, default and range.

Sections that are pydantic models are walked field by field. The others are read by hand in DeepSpeed:
a dictionary that notes what is asked of it, and with which default, finds their keys. Parameters of
optimizers and schedulers come from their signatures.
"""

import copy
import enum
import inspect
import json
import pathlib
import re
import types
import typing

from check_deepspeed_engine import first_line, muted

# Sections read by pydantic and where they stand; sections nested in them are found. Some releases
# read some of them by hand, and older ones know fewer.
MODELS = {
    "/zero_optimization": "runtime.zero.config:DeepSpeedZeroConfig",
    "/bf16": "runtime.precision_config:DeepSpeedBF16Config",
    "/bfloat16": "runtime.precision_config:DeepSpeedBF16Config",
    "/fp16": "runtime.precision_config:DeepSpeedFP16Config",
    "/hybrid_engine": "runtime.config:HybridEngineConfig",
    "/compile": "compile.config:CompileConfig",
    "/comms_logger": "comm.config:CommsLoggerConfig",
    "/tensorboard": "monitor.config:TensorBoardConfig",
    "/wandb": "monitor.config:WandbConfig",
    "/csv_monitor": "monitor.config:CSVConfig",
    "/comet": "monitor.config:CometConfig",
    "/timers/throughput": "utils.config:DeepSpeedThroughputTimerConfig",
    "/tensor_parallel": "runtime.tensor_parallel.config:TPTrainingConfig",
    "/weight_quantization": "inference.config:WeightQuantConfig",
}

# Types of keys whose default is null, and of those read without a default.
TYPES = {
    "/train_batch_size": "integer", "/train_micro_batch_size_per_gpu": "integer",
    "/gradient_accumulation_steps": "integer", "/steps_per_print": "integer",
    "/vocabulary_size": "integer", "/sequence_parallel_size": "integer",
    "/activation_checkpointing/number_checkpoints": "integer", "/gradient_clipping": "number",
    "/gradient_predivide_factor": "number", "/checkpoint/writer": "object",
    "/optimizer/legacy_fusion": "boolean", "/optimizer/params/max_grad_norm": "number",
    "/data_types/keep_in_fp32_modules": "any", "/optimizer/params": "object",
    "/torch_autocast/lower_precision_safe_modules": "list",
    "/data_efficiency/data_sampling/dynamic_batching/max_batch_size": "integer",
    "/expert_parallel": "object", "/pipeline": "object", "/datastates_ckpt": "object", "/compression_training/shared_parameters": "object",
    "/compression_training/weight_quantization/shared_parameters/fp16_mixed_quantize": "object",
    **{f"/compression_training/{kind}/different_groups": "object"
       for kind in ("weight_quantization", "activation_quantization", "sparse_pruning",
                    "row_pruning", "head_pruning", "channel_pruning")},
}

# Opens every section that is read by hand; what the release has removed is left out.
SECTIONS = {
    "activation_checkpointing": {}, "aio": {}, "flops_profiler": {}, "nebula": {}, "data_types": {},
    "elasticity": {}, "amp": {"enabled": False}, "torch_autocast": {}, "pipeline": {},
    "progressive_layer_drop": {"enabled": False}, "curriculum_learning": {"enabled": False},
    "sparse_attention": {}, "expert_parallel": {}, "timers": {"throughput": {}},
    "checkpoint": {"writer": {}, "parallel_write": {}},
    "data_efficiency": {"data_sampling": {"curriculum_learning": {}, "dynamic_batching": {}},
                        "data_routing": {"random_ltd": {}}},
    "compression_training": {
        "layer_reduction": {},
        **{kind: {"shared_parameters": {}, "different_groups": {}}
           for kind in ("weight_quantization", "activation_quantization", "sparse_pruning",
                        "row_pruning", "head_pruning", "channel_pruning")}},
    "scheduler": {}, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
}

# Precision is read by hand up to 0.16.9, and most of it only where it is enabled.
PRECISIONS = ({}, {"fp16": {"enabled": True}}, {"fp16": {"enabled": True, "loss_scale_window": 1000}},
              {"bf16": {"enabled": True}}, {"bfloat16": {"enabled": True}})

# A walk may end so: the config has been read by then, and the rest needs a model, ranks or a GPU.
KNOWN_ENDS = ("requires an optimizer", "'UniversalParallelInfo' object", "no NVIDIA driver")

OPTIMIZERS = {"FusedAdam": "deepspeed.ops.adam:FusedAdam", "torch": "torch.optim:AdamW",
              "FusedLion": "deepspeed.ops.lion:FusedLion", "SGD": "torch.optim:SGD",
              "Adagrad": "torch.optim:Adagrad"}
SCHEDULERS = ("LRRangeTest", "OneCycle", "WarmupLR", "WarmupDecayLR", "WarmupCosineLR")


class Noting(dict):
    """A config that notes which keys are asked for and the defaults that are given."""

    def __init__(self, content, pointer, notes):
        super().__init__({key: Noting(value, f"{pointer}/{key}", notes)
                          if isinstance(value, dict) else value for key, value in content.items()})
        self.pointer, self.notes = pointer, notes

    def note(self, key, *defaults):
        self.notes.setdefault(f"{self.pointer}/{key}", []).extend(defaults)

    def get(self, key, default=None):
        self.note(key, default)
        return super().get(key, default)

    def __getitem__(self, key):
        self.note(key)
        return super().__getitem__(key)

    def __contains__(self, key):
        self.note(key)
        return super().__contains__(key)

    def keys(self):
        config = self

        class Keys(list):
            def __contains__(self, key):
                return key in config

        return Keys(dict.keys(self))

    def __copy__(self):
        twin = Noting({}, self.pointer, self.notes)
        dict.update(twin, self)
        return twin

    def __deepcopy__(self, memo):
        return self.__copy__()


def schema(engine, previous=None):
    """{"deepspeed": version, "removed": {pointer: words of the refusal}, "keys": {pointer: {type,
    default, ...}}} of all keys, sections too, in order of their names. previous: the table of an
    older release; its sections must be found again, or be refused by name."""
    removed = Removed(engine, previous)
    models = {pointer: model for pointer, place in MODELS.items()
              if (model := imported_if_there(f"deepspeed.{place}"))}
    keys = read_by_hand(engine, removed, models)
    for pointer, model in models.items():
        keys.setdefault(pointer, {"type": "object", "default": None})
        keys.update(model_fields(model, pointer))
    keys["/zero_optimization"] = {"type": "object", "default": None}
    for kind, place in OPTIMIZERS.items():
        add_parameters(keys, "/optimizer/params", kind, imported(place))
    for kind in SCHEDULERS:
        add_parameters(keys, "/scheduler/params", kind,
                       imported(f"deepspeed.runtime.lr_schedules:{kind}"))
    keys = {pointer: key for pointer, key in sorted(keys.items()) if pointer not in removed}
    found = {"deepspeed": engine.version, "removed": dict(sorted(removed.words.items())),
             "keys": keys}
    if previous:
        refuse_lost_sections(previous, found)
    return found


class Removed:
    """Keys that the release refuses by their presence, with its words."""

    def __init__(self, engine, previous):
        self.engine, self.words, self.asked = engine, {}, set()
        for pointer in [f"/{name}" for name in SECTIONS] + list(previous["keys"] if previous else ()):
            self.ask(pointer)

    def ask(self, pointer):
        """Asks DeepSpeed of top-level keys and those of zero_optimization, each once."""
        *section, name = pointer[1:].split("/")
        if section not in ([], ["zero_optimization"]) or pointer in self.asked:
            return
        self.asked.add(pointer)
        config = {name: {}}
        if section:
            config = {section[0]: config}
        refusal = self.engine.refusal_of_config({"train_batch_size": self.engine.world_size, **config})
        if refusal and re.search(r"\bremoved\b|no longer supported", refusal):
            self.words[pointer] = refusal

    def __contains__(self, pointer):
        self.ask(pointer)
        return any(pointer == word or pointer.startswith(f"{word}/") for word in self.words)


def refuse_lost_sections(previous, found):
    """A section that is known from an older release has no keys any more, nor is it removed: the walk
    lost it."""
    def has_keys(table, section):
        return any(pointer.startswith(f"{section}/") for pointer in table["keys"])

    lost = [pointer for pointer in previous["keys"]
            if has_keys(previous, pointer) and not has_keys(found, pointer)
            and not any(pointer == word or pointer.startswith(f"{word}/") for word in found["removed"])]
    if lost:
        raise SystemExit(f"DeepSpeed {found['deepspeed']}: no key found in {', '.join(lost)}, which "
                         f"{previous['deepspeed']} has. Mend MODELS, PRECISIONS or SECTIONS in {__file__}.")


def add_parameters(keys, section, kind, function):
    for name, entry in parameters(function).items():
        keys.setdefault(f"{section}/{name}", entry).setdefault("of", []).append(kind)


def imported_if_there(place):
    """None where this release has no such module or class."""
    try:
        return imported(place)
    except AttributeError:
        return None
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("deepspeed"):
            raise
        return None


def imported(place):
    module, name = place.split(":")
    return getattr(__import__(module, fromlist=[name]), name)


def read_by_hand(engine, removed, models):
    notes = {}
    opened = {name: content for name, content in SECTIONS.items() if f"/{name}" not in removed}
    for stage in range(4):
        for sections in ({}, *({**opened, **precision} for precision in PRECISIONS)):
            if any(f"/{name}" in models for name in sections):
                continue
            config = {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": stage},
                      **copy.deepcopy(sections)}
            walk(engine, config, notes)
    keys = {}
    for pointer, defaults in notes.items():
        if pointer.startswith(("/autotuning", *(f"{model}/" for model in models))):
            continue  # another section's reader, and pydantic's, which are walked
        known = [default for default in defaults if default not in (None, {})]
        default = known[0] if known else None
        keys[pointer] = {"type": TYPES.get(pointer, json_type(default)), "default": default}
    for pointer in keys:
        if any(other.startswith(f"{pointer}/") for other in (*keys, *models)) or pointer in models:
            keys[pointer] = {"type": "object", "default": None}
    return keys


def walk(engine, config, notes):
    """An engine with this config, noting what it asks for."""
    try:
        with muted():
            engine.initialized(Noting(config, "", notes))
    except Exception as error:  # noqa: BLE001: whatever DeepSpeed raises
        message = first_line(error)
        if not any(words in message for words in KNOWN_ENDS):
            raise SystemExit(f"DeepSpeed {engine.version} ends the walk, so that keys would be lost: "
                             f"{message}\nconfig: {json.dumps(config)}\nMend SECTIONS or KNOWN_ENDS in "
                             f"{__file__}.") from error


def json_type(value):
    kinds = {bool: "boolean", int: "integer", float: "number", str: "text", list: "list",
             tuple: "list", dict: "object"}
    return kinds.get(type(value), "text")


def model_fields(model, pointer):
    keys = {}
    for name, field in model.model_fields.items():
        kind, nullable, nested, choices = field_type(field.annotation)
        default = field.get_default(call_default_factory=True)
        entry = {"type": kind, "default": None if nested else plain(default), "strict": True}
        if nullable:
            entry["nullable"] = True
        if str(default).startswith("torch."):
            entry.update(default="auto", choices=["auto"])  # only a program can set it
        if choices:
            entry["choices"] = choices
        if field.description:
            entry["description"] = " ".join(field.description.split()).rstrip(".")
        for limit in field.metadata:
            entry.update({word: getattr(limit, word) for word in ("ge", "gt", "le", "lt")
                          if hasattr(limit, word)})
        extra = field.json_schema_extra or {}
        if extra.get("deprecated"):
            entry["deprecated"] = extra.get("new_param", "")
        for written in {name, field.alias or name}:
            keys[f"{pointer}/{written}"] = dict(entry)
            if field.alias and written == name:
                keys[f"{pointer}/{written}"]["alias_of"] = field.alias
            if nested:
                keys.update(model_fields(nested, f"{pointer}/{written}"))
    return keys


def field_type(annotation):
    """(type, null allowed, pydantic model in it, words)"""
    members = typing.get_args(annotation)
    if typing.get_origin(annotation) in (typing.Union, types.UnionType) and type(None) in members:
        inner = [member for member in members if member is not type(None)]
        kind, _, nested, choices = field_type(inner[0])
        return kind, True, nested, choices
    origin = typing.get_origin(annotation) or annotation
    if inspect.isclass(origin) and hasattr(origin, "model_fields"):
        return "object", False, origin, None
    if inspect.isclass(origin) and issubclass(origin, enum.Enum):
        if issubclass(origin, int):
            return "integer", False, None, None
        return "text", False, None, [member.value for member in origin]
    kinds = {bool: "boolean", int: "integer", float: "number", str: "text", pathlib.Path: "text",
             list: "list", tuple: "list", dict: "object", object: "any"}
    return kinds.get(origin, "text"), origin is object, None, None


def plain(value):
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, (list, tuple)):
        return [plain(member) for member in value]
    return value if isinstance(value, (bool, int, float, str, dict, type(None))) else str(value)


def parameters(function):
    """The arguments that a config can give to an optimizer or scheduler."""
    found = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if name in ("params", "optimizer", "last_batch_iteration"):
            continue  # not for a config to give
        required = parameter.default is inspect.Parameter.empty
        default = None if required else plain(parameter.default)
        hint = {bool: "boolean", int: "integer", float: "number", str: "text"}
        kind = json_type(default) if default is not None else hint.get(parameter.annotation, "number")
        if name in ("foreach", "fused"):
            kind = "boolean"
        elif name.endswith(("_size", "_count", "_steps")):
            kind = "integer"
        elif parameter.annotation in (float, "float"):
            kind = "number"  # also where the default is written 0
        found[name] = {"type": kind, "default": default, **({"required": True} if required else {})}
    return found


def write(table, path):
    """A line for each key, so that releases compare well."""
    lines = [f" {json.dumps(pointer)}: {json.dumps(without_description(key))}"
             for pointer, key in table["keys"].items()]
    removed = f'"removed": {json.dumps(table["removed"], indent=1)},\n' if table["removed"] else ""
    path.write_text(f'{{"deepspeed": "{table["deepspeed"]}", {removed}"keys": {{\n' + ",\n".join(lines)
                    + "\n}}\n")


def without_description(key):
    return {word: value for word, value in key.items() if word != "description"}


def read_all(folder):
    """The tables that are known, the oldest release first."""
    tables = [{"removed": {}, **json.loads(path.read_text())}
              for path in folder.glob("deepspeed_*_schema.json")]
    return sorted(tables, key=lambda table: numbers(table["deepspeed"]))


def numbers(version):
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])


def previous_of(tables, version):
    """The newest of an older release, or None."""
    older = [table for table in tables if numbers(table["deepspeed"]) < numbers(version)]
    return older[-1] if older else None


def is_newest(tables, version):
    return all(numbers(table["deepspeed"]) <= numbers(version) for table in tables)


def rows_to_add(previous, table):
    """What the release has otherwise than an older one, line by line."""
    version = table["deepspeed"]
    before, now = previous["keys"], table["keys"]
    yield f"DeepSpeed {version} against {previous['deepspeed']}:"
    for pointer in sorted(now.keys() - before.keys()):
        yield f"new      {pointer}: since {version}, {json.dumps(now[pointer])}"
    for pointer, words in table["removed"].items():
        if pointer not in previous["removed"]:
            yield f"refused  {pointer}: until {version}, \"{words}\""
    for pointer in sorted(before.keys() - now.keys()):
        if not any(f"{pointer}/".startswith(f"{word}/") for word in table["removed"]):
            yield f"unknown  {pointer}: until {version}"
    for pointer in sorted(now.keys() & before.keys()):
        for word in sorted(without_description(now[pointer]).keys() | before[pointer].keys()):
            was, is_now = before[pointer].get(word), now[pointer].get(word)
            if was != is_now:
                yield (f"changed  {pointer}: {word} {json.dumps(was)} before {version}, "
                       f"{json.dumps(is_now)} now")
