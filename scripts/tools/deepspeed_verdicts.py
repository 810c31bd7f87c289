#!/usr/bin/env python3
"""Which configs do releases of DeepSpeed take? The verdicts that `dstune-mpi check` is held against.

cases [--seed N] [--number N]   Draws changes of our own base configs: verdict_cases.jsonl
record --sources FOLDER         Asks the DeepSpeedConfig of each release: verdicts.json, and with
       [--world FOLDER...]      folders of config files world_verdicts.json, which has no file's content
table  [--program TESTS]        Lets the test of the space count what differs; prints columns and rows as JSON
       [--world FOLDER]

FOLDER of sources has a folder for each release, as `pip download --no-deps --no-binary :all:
deepspeed==0.19.8` brings it, unpacked and named 0.19.8. A release is asked in its own process, its source
first on PYTHONPATH, with one PyTorch for all. Nothing is replaced and no operator is built: of DeepSpeed
get_rank and get_world_size answer for 8 ranks that are not there, of files for as many of 8, 4, 2 and 1 as
their batch sizes allow, and the accelerator's name is "cuda". "auto" is filled in before by Hugging Face's
own code, with arguments of the Trainer that go with the config.
"""

import argparse
import atexit
import copy
import hashlib
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import types

import check_deepspeed_schema

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = ROOT / "mpi_tests/unit/space/data"
SCHEMAS = ROOT / "mpi_tests/unit/core/data"
BASES, CASES, VERDICTS = DATA / "verdict_bases.json", DATA / "verdict_cases.jsonl", DATA / "verdicts.json"
TEXTS = DATA / "verdict_texts.json"  # files as they stand, for what a change of values can not make
WORLD_VERDICTS = DATA / "world_verdicts.json"
COLUMNS = ["configs", "DeepSpeed", "number", "refused by DeepSpeed", "refused here", "by DeepSpeed alone", "here alone"]
RELEASES = ["0.14.5", "0.16.9", "0.18.9", "0.19.6", "0.19.8"]
WORLD_SIZE = 8
LENGTH = 100  # of a refusal's words

# Values that a key is given in place of its own. No list: one is a set of candidates to dstune-mpi, except
# where a key takes lists.
SCALARS = [None, True, False, 0, 1, -1, 2, 3, 8, 1.5, 0.5, 0.0, -0.5, 2.0, 1e9, 1e30, 2**63, "auto", "true",
           "False", "1", " 7 ", "2.0", "0.5", "1e-3", "abc", "", "none", "cpu", "fp32"]
OBJECTS = [{}, {"enabled": False}, {"enabled": True}, {"enabled": "auto"}, {"device": "cpu"}]
LISTS = [[], ["a"], [1], [0.5, 0.5], [1, 2, 3], ["z1"], [None], "a", {}, 3, None]
WORDS = {
    "type": ["Adam", "adam", "ADAMW", "AdamW ", "Lion", "Adagrad", "SGD", "sgd", "Lamb", "Muon", "RMSprop",
             "OneBitAdam", "ZeroOneAdam", "WarmupLR", "warmuplr", "WarmupCosineLR", "OneCycle", "StepLR"],
    "device": ["cpu", "nvme", "none", "CPU", "gpu", "cuda"],
    "dtype": ["fp16", "bf16", "fp32", "float16", "torch.bfloat16", "half", "BF16", "int8", "fp8"],
    "mode": ["Warn", "IGNORE", "fail", "dense", "fixed", "variable", "bigbird", "bslongformer", "symmetric",
             "asymmetric", "min", "sum", "MEAN", "DEBUG", "python", "l1", "topk", "liger", "fixed_linear"],
}
# Two names of one key.
NAMES = [("bf16", "bfloat16"), ("bf16", "bf16_"), ("stage3_max_live_parameters", "max_live_parameters"),
         ("stage3_prefetch_bucket_size", "prefetch_bucket_size"),
         ("stage3_param_persistence_threshold", "param_persistence_threshold"),
         ("stage3_max_reuse_distance", "max_reuse_distance"),
         ("stage3_gather_16bit_weights_on_model_save", "gather_16bit_weights_on_model_save"),
         ("stage3_gather_16bit_weights_on_model_save", "stage3_gather_fp16_weights_on_model_save"),
         ("offload_optimizer", "cpu_offload"), ("offload_param", "cpu_offload_param"),
         ("thread_count", "intra_op_parallelism"), ("train_micro_batch_size_per_gpu", "train_batch_size"),
         ("tp", "tensor_parallel"), ("gradient_clipping", "max_grad_norm"), ("fp16", "amp")]
KINDS = {"type": 30, "number": 12, "word": 8, "spelling": 12, "place": 10, "nesting": 6, "removed": 4,
         "release": 20, "added": 14, "names": 4, "pair": 10}


def escaped(key):
    return key.replace("~", "~0").replace("/", "~1")


def walk(value, pointer=""):
    """(pointer, value) of everything below, without the elements of lists."""
    for key, member in value.items():
        place = f"{pointer}/{escaped(key)}"
        yield place, member
        if isinstance(member, dict):
            yield from walk(member, place)


def parts(pointer):
    return [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]


def at(config, names):
    for name in names:
        config = config[name]
    return config


def patched(config, patch):
    """RFC 6902, of objects: add, remove, move."""
    config = copy.deepcopy(config)
    for operation in patch:
        if operation["op"] == "move":
            *above, name = parts(operation["from"])
            value = at(config, above).pop(name)
        else:
            value = operation.get("value")
        *above, name = parts(operation["path"])
        if operation["op"] == "remove":
            del at(config, above)[name]
        else:
            at(config, above)[name] = copy.deepcopy(value)
    return config


def add(pointer, value):
    return {"op": "add", "path": pointer, "value": value}


def edited(draw, key):
    """The key with a letter or two changed, or spelt in another way."""
    ways = [lambda: key.upper(), lambda: key.capitalize(), lambda: key.replace("_", "-"),
            lambda: key.replace("z", "s"), lambda: key + "s", lambda: key.replace("_", ""), lambda: " " + key]
    for _ in range(6):
        place = draw.randrange(len(key))
        ways += [lambda p=place: key[:p] + key[p + 1:], lambda p=place: key[:p] + "x" + key[p + 1:],
                 lambda p=place: key[:p] + key[p:p + 2][::-1] + key[p + 2:],
                 lambda p=place: key[:p] + key[p] + key[p:]]
    return draw.choice(ways)()


class Drawer:
    """Changes of one base config; None where the draw makes none."""

    def __init__(self, draw, entries):
        self.draw, self.entries = draw, entries

    def place(self, config, of=lambda value: True):
        found = [(pointer, value) for pointer, value in walk(config) if of(value)]
        return self.draw.choice(found) if found else (None, None)

    def other_value(self, value):
        if isinstance(value, list):
            return self.draw.choice([*LISTS, value[1:], value + value])
        return self.draw.choice(SCALARS + OBJECTS if isinstance(value, dict) else 3 * SCALARS + OBJECTS)

    def type(self, config):
        pointer, value = self.place(config)
        return [add(pointer, self.other_value(value))]

    def number(self, config):
        pointer, value = self.place(config, lambda value: type(value) in (int, float))
        if pointer is None:
            return None
        return [add(pointer, self.draw.choice([-value, value + 0.5, value * 10**12, str(value), 0, float(value),
                                               value + 1, f"{value}.0", 1e-10, value * 3, -1]))]

    def word(self, config):
        pointer, value = self.place(config, lambda value: isinstance(value, str) and value != "auto")
        if pointer is None:
            return None
        key = parts(pointer)[-1]
        words = WORDS.get(key, WORDS["dtype" if "dtype" in key or "data_type" in key else "mode"])
        return [add(pointer, self.draw.choice([*words, value.upper(), value.lower(), value + " "]))]

    def spelling(self, config):
        pointer, _ = self.place(config)
        *above, key = parts(pointer)
        return [self.moved(pointer, above, edited(self.draw, key))]

    @staticmethod
    def moved(pointer, above, key):
        return {"op": "move", "from": pointer,
                "path": "".join(f"/{escaped(name)}" for name in [*above, key])}

    def sections(self, config):
        return [[]] + [parts(pointer) for pointer, value in walk(config) if isinstance(value, dict)]

    def placed(self, config):
        pointer, _ = self.place(config)
        names = parts(pointer)
        section = self.draw.choice(self.sections(config))
        if section[:len(names)] == names:
            return None
        return [self.moved(pointer, section, names[-1])]

    def nesting(self, config):
        pointer, value = self.place(config)
        *above, key = parts(pointer)
        if isinstance(value, dict) and value and self.draw.random() < 0.5:  # its members beside it
            return [self.moved(f"{pointer}/{escaped(name)}", above, name) for name in value if name != key]
        return [add(pointer, {self.draw.choice([key, "value", "enabled", "params"]): value})]

    def removed(self, config):
        pointer, _ = self.place(config)
        return [{"op": "remove", "path": pointer}]

    def put(self, config, pointer, value):
        """Adds a key with the sections above it."""
        *above, _ = parts(pointer)
        patch, place, inside = [], "", config
        for name in above:
            place += f"/{escaped(name)}"
            inside = inside.get(name) if isinstance(inside, dict) else None
            if not isinstance(inside, dict):
                patch.append(add(place, {}))
                inside = {}
        return [*patch, add(pointer, value)]

    def entry(self):
        pointer = self.draw.choice(list(self.entries))
        return pointer, self.entries[pointer]

    def release(self, config):
        """A key that some release has, with a value of its type."""
        pointer, entry = self.entry()
        values = {"boolean": [True, False], "integer": [1, 2, 8, 64], "number": [0.0, 0.5, 1.0, 2],
                  "text": entry.get("choices", ["x", "none", "cpu", "bf16"]), "list": [["a"], ["z1"]],
                  "object": [{}, {"enabled": True}, {"enabled": False}], "any": [1, "x"]}[entry["type"]]
        default = [] if isinstance(entry["default"], list) else [entry["default"]]
        return self.put(config, pointer, self.draw.choice(values + default))

    def added(self, config):
        """The same with any value."""
        pointer, entry = self.entry()
        return self.put(config, pointer, self.other_value([] if entry["type"] == "list" else entry["default"]))

    def names(self, config):
        """Two names of a key, or the other one alone."""
        first, other = self.draw.choice(NAMES)
        for pointer, value in walk(config):
            *above, key = parts(pointer)
            if key == first:
                if self.draw.random() < 0.3:
                    return [self.moved(pointer, above, other)]
                return [add("".join(f"/{escaped(name)}" for name in [*above, other]), value)]
        return None

    def pair(self, config):
        kinds = [kind for kind in KINDS if kind != "pair"]
        first = self.of(self.draw.choice(kinds), config)
        if first is None:
            return None
        second = self.of(self.draw.choice(kinds), patched(config, first))
        return None if second is None else first + second

    def of(self, kind, config):
        return self.placed(config) if kind == "place" else getattr(self, kind)(config)


def would_hang(patch):
    """DeepSpeed takes 2 to the power of it."""
    return any("initial_scale_power" in operation["path"] and isinstance(operation.get("value"), int)
               and operation["value"] > 4096 for operation in patch)


def draw_cases(options):
    draw = random.Random(options.seed)
    bases = json.loads(BASES.read_text())
    entries = {}
    for table in check_deepspeed_schema.read_all(SCHEMAS):
        entries.update(table["keys"])
    drawer = Drawer(draw, entries)
    kinds = [kind for kind, weight in KINDS.items() for _ in range(weight)]
    names, known = sorted(bases), {json.dumps(config, sort_keys=True) for config in bases.values()}
    lines = [{"base": name, "kind": "base", "patch": []} for name in names]
    while len(lines) < len(names) + options.number:
        name, kind = draw.choice(names), draw.choice(kinds)
        patch = drawer.of(kind, bases[name])
        if not patch or would_hang(patch):
            continue
        mark = json.dumps(patched(bases[name], patch), sort_keys=True)
        if mark not in known:
            known.add(mark)
            lines.append({"base": name, "kind": kind, "patch": patch})
    CASES.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))
    print(f"{CASES}: {len(lines)} cases")


def read_cases():
    bases = json.loads(BASES.read_text())
    lines = [json.loads(line) for line in CASES.read_text().splitlines()]
    return [patched(bases[line["base"]], line["patch"]) for line in lines] + json.loads(TEXTS.read_text())


# What DeepSpeed reads.


def sizes_of(config, ranks):
    """The sizes of the Trainer's arguments: those that the config has, else what goes with them."""
    def size(key):
        value = config.get(key)
        is_size = type(value) in (int, float) and value > 0 and value == int(value)
        return int(value) if is_size else None

    total, micro, steps = map(size, ("train_batch_size", "train_micro_batch_size_per_gpu",
                                     "gradient_accumulation_steps"))
    if micro is None:
        micro = max(1, total // (ranks * (steps or 1))) if total else 8
    if steps is None:
        steps = max(1, total // (ranks * micro)) if total else 1
    return micro, steps


def filled(config, ranks):
    """The config as Hugging Face's Trainer hands it to DeepSpeed."""
    if not isinstance(config, dict) or '"auto"' not in json.dumps(config):
        return config
    from transformers.integrations.deepspeed import HfTrainerDeepSpeedConfig
    micro, steps = sizes_of(config, ranks)
    arguments = types.SimpleNamespace(
        world_size=ranks, per_device_train_batch_size=micro, gradient_accumulation_steps=steps,
        max_grad_norm=1.0, learning_rate=5e-5, adam_beta1=0.9, adam_beta2=0.999, adam_epsilon=1e-8,
        weight_decay=0.0, save_on_each_node=False, fp16=False, fp16_full_eval=False, bf16=False,
        bf16_full_eval=False, get_warmup_steps=lambda steps: 0)
    try:
        trainers = HfTrainerDeepSpeedConfig(copy.deepcopy(config))
        trainers.trainer_config_process(arguments)
        trainers.mismatches = []  # of arguments that are not given
        trainers.fill_match = lambda key, value, *rest, **more: \
            HfTrainerDeepSpeedConfig.fill_match(trainers, key, value, must_match=False)
        trainers.trainer_config_finalize(
            arguments, types.SimpleNamespace(config=types.SimpleNamespace(hidden_size=1024)), 1000)
    except Exception:  # noqa: BLE001: the Trainer's code fails on it; DeepSpeed is asked all the same
        return config
    return trainers.config


def group_for(config):
    """A number of ranks that the batch sizes of a file allow, so that its other keys are read."""
    sizes = [config.get(key) for key in ("train_batch_size", "train_micro_batch_size_per_gpu",
                                         "gradient_accumulation_steps")] if isinstance(config, dict) else []
    total, micro, steps = [size if type(size) is int and size > 0 else 1 for size in sizes] or (1, 1, 1)
    fits = [ranks for ranks in (8, 4, 2, 1) if total % (micro * steps * ranks) == 0]
    return fits[0] if fits and "train_batch_size" in config else WORLD_SIZE


def judge():
    """In the release's process: [ranks, config] on stdin, [class, words] or null of each on stdout."""
    import check_deepspeed_engine
    configs = json.load(sys.stdin)
    verdicts = []
    with check_deepspeed_engine.muted():
        import logging

        import deepspeed
        logging.disable(logging.CRITICAL)
        deepspeed.comm.get_rank = lambda group=None: 0
        deepspeed.accelerator.get_accelerator().device_name = lambda index=None: "cuda"
        for ranks, config in configs:
            deepspeed.comm.get_world_size = lambda group=None, ranks=ranks: ranks
            try:
                deepspeed.DeepSpeedConfig(config if isinstance(config, dict) else as_file(config))
                verdicts.append(None)
            except (Exception, SystemExit) as error:  # noqa: BLE001: whatever DeepSpeed raises
                words = re.sub("0x[0-9a-f]+", "0x", check_deepspeed_engine.first_line(error))
                verdicts.append([type(error).__name__, words[:LENGTH]])
    json.dump({"deepspeed": deepspeed.__version__, "verdicts": verdicts}, sys.stdout)


def as_file(text):
    path = pathlib.Path(tempfile.gettempdir()) / f"verdict_{os.getpid()}.json"
    path.write_text(text)
    atexit.register(path.unlink, missing_ok=True)
    return str(path)


def ask(sources, release, configs):
    folder = sources / release
    if not (folder / "deepspeed").is_dir():
        raise SystemExit(f"{folder}: no source of DeepSpeed {release} in it")
    done = subprocess.run([sys.executable, "-W", "ignore", __file__, "judge"], input=json.dumps(configs),
                          capture_output=True, text=True, check=False,
                          env={**os.environ, "PYTHONPATH": str(folder), "DS_ACCELERATOR": "cpu"})
    if done.returncode != 0:
        raise SystemExit(f"DeepSpeed {release} ended with {done.returncode}: {done.stderr[-2000:]}")
    answer = json.loads(done.stdout.splitlines()[-1])
    if answer["deepspeed"].split("+")[0].strip() != release or len(answer["verdicts"]) != len(configs):
        raise SystemExit(f"{folder} is DeepSpeed {answer['deepspeed']}")
    return answer["verdicts"]


def ask_all(sources, groups, configs):
    """(refusals, rows): a row has for each release 0 where it takes the config, else the refusal's number."""
    ready = [(ranks, filled(config, ranks)) for ranks, config in zip(groups, configs)]
    columns = [ask(sources, release, ready) for release in RELEASES]
    refusals = []
    numbers = {}
    rows = []
    for row in zip(*columns):
        rows.append([])
        for verdict in row:
            words = ": ".join(verdict) if verdict else None
            if words and words not in numbers:
                refusals.append(words)
                numbers[words] = len(refusals)
            rows[-1].append(numbers[words] if words else 0)
    return refusals, rows


def header():
    import torch
    import transformers
    return {"releases": RELEASES, "torch": torch.__version__.split("+")[0],
            "transformers": transformers.__version__}


def world_files(folders):
    """(name, text's digest, config) of each file; two folders may have a file of one name."""
    for folder in folders:
        for path in sorted(folder.iterdir()):
            content = path.read_bytes()
            yield f"{folder.name}/{path.name}", hashlib.sha256(content).hexdigest()[:16], config_in(path)


def config_in(path):
    import hjson
    from deepspeed.runtime.config_utils import dict_raise_error_on_duplicate_keys
    if path.suffix in (".yaml", ".yml"):
        return config_of_accelerate(path)
    return json.loads(json.dumps(hjson.loads(path.read_text(),
                                             object_pairs_hook=dict_raise_error_on_duplicate_keys)))


def config_of_accelerate(path):
    """The config that accelerate makes of its file."""
    import yaml
    from accelerate.utils import DeepSpeedPlugin
    content = yaml.safe_load(path.read_text())
    said = content["deepspeed_config"]
    plugin = DeepSpeedPlugin(**{name: said[key] for key, name in {
        "zero_stage": "zero_stage", "gradient_accumulation_steps": "gradient_accumulation_steps",
        "gradient_clipping": "gradient_clipping", "offload_optimizer_device": "offload_optimizer_device",
        "offload_param_device": "offload_param_device", "zero3_init_flag": "zero3_init_flag",
        "zero3_save_16bit_model": "zero3_save_16bit_model"}.items() if key in said})
    plugin.set_mixed_precision(content["mixed_precision"])
    return json.loads(json.dumps(plugin.deepspeed_config))


def record(options):
    cases = read_cases()
    refusals, rows = ask_all(options.sources, [WORLD_SIZE] * len(cases), cases)
    for base, row in zip(sorted(json.loads(BASES.read_text())), rows):
        if all(row):
            raise SystemExit(f"no release takes the base config {base}: {refusals[row[0] - 1]}")
    start = json.dumps({**header(), "ranks": WORLD_SIZE, "refusals": refusals}, indent=1)[:-2]
    VERDICTS.write_text(f'{start},\n "verdicts": [\n' + ",\n".join(
        json.dumps(row, separators=(",", ":")) for row in rows) + "\n]\n}\n")
    print(f"{VERDICTS}: {len(rows)} cases, refused by {refused_by(rows)}")
    if not options.world:
        return
    files = list(world_files(options.world))
    groups = [group_for(config) for _, _, config in files]
    refusals, rows = ask_all(options.sources, groups, [config for _, _, config in files])
    lines = [json.dumps({"file": name, "sha256": digest, "ranks": ranks, "verdicts": row},
                        separators=(",", ":")) for (name, digest, _), ranks, row in zip(files, groups, rows)]
    start = json.dumps({**header(), "refusals": refusals}, indent=1)[:-2]
    WORLD_VERDICTS.write_text(f'{start},\n "files": [\n  ' + ",\n  ".join(lines) + "\n ]\n}\n")
    print(f"{WORLD_VERDICTS}: {len(rows)} files, refused by {refused_by(rows)}")


def refused_by(rows):
    counts = [sum(1 for row in rows if row[at]) for at in range(len(RELEASES))]
    return ", ".join(f"{release} {count}" for release, count in zip(RELEASES, counts))


def table(options):
    world = {"DSTUNE_WORLD": str(options.world.resolve())} if options.world else {}
    done = subprocess.run([options.program, "--gtest_filter=*VerdictsTest*"], capture_output=True, text=True,
                          check=False, env={**os.environ, **world})
    rows = [line for line in done.stdout.splitlines() if line.startswith(("| changed |", "| public |"))]
    if done.returncode != 0 or not rows:
        raise SystemExit(f"{options.program} ends with {done.returncode}: {done.stdout[-2000:]}")
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in rows]
    print(json.dumps({"columns": COLUMNS,
                      "rows": [[*row[:2], *(int(cell) for cell in row[2:])] for row in cells]}))


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    cases = commands.add_parser("cases")
    cases.add_argument("--seed", type=int, default=1)
    cases.add_argument("--number", type=int, default=2000)
    recording = commands.add_parser("record")
    recording.add_argument("--sources", type=pathlib.Path, required=True)
    recording.add_argument("--world", type=pathlib.Path, nargs="+", default=[])
    writing = commands.add_parser("table")
    writing.add_argument("--program", default="build/release/tests/test_unit_space")
    writing.add_argument("--world", type=pathlib.Path, help="the folder above those of record")
    commands.add_parser("judge")
    options = parser.parse_args()
    {"cases": draw_cases, "record": record, "table": table, "judge": lambda _: judge()}[options.command](options)


if __name__ == "__main__":
    main()
