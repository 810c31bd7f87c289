#!/usr/bin/env python3
"""Does docs/space.schema.json take what dstune-mpi takes, and docs/plan.schema.json what it prints?

    scripts/tools/check_schema.py [--binary build/release/dstune-mpi] [--samples N] [--seed N]

Writes documents that differ from a valid one in a single key, whose values come from the schema's
own limits and from a fixed list of right and wrong ones, and compares the schema's verdict with that
of `dstune-mpi --dry-run` (exit code 3: refused). Each plan must follow its schema. Needs the Python
package jsonschema. Without --samples every document is tried, which takes minutes.
"""
import argparse
import concurrent.futures
import copy
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile

import jsonschema

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = {"family": "gpt2", "hidden_size": 8, "num_layers": 1, "num_heads": 2, "vocab_size": 16,
         "max_positions": 64}
BASE = {
    "dstune": {"model": MODEL, "sequence_length": 8, "resources": {"num_gpus": 1}},
    "autotuning": {"enabled": True, "tuner_type": "gridsearch"},
    "train_micro_batch_size_per_gpu": [1],
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
    "zero_optimization": {"stage": 0},
}
VALUES = [None, True, False, 0, 1, -1, 2, 3, 4, 1.5, 2.0, 5e8, 0.5, 2**24 + 2, 2**63, "", " ", "x",
          "auto", "AUTO", "all", "yes", "No", "5", " 7 ", "1e3", "self", "cpu", "none", "64GiB", "0GiB",
          "64 ", "$NOWHERE ELSE", [], [[]], [1], [2, 4], [None], ["auto"], [True, False], [False],
          ["none"], [0.9, 0.95], [[0.9, 0.95]], [0.9], [{}], {}, {"unheard_of": 1}]

# What a schema can not say: (start of the pointer, test of the value, why). The schema takes such a
# document and the program refuses it.
NOT_SAID = [
    ("/dstune/model", lambda v: isinstance(v, str), "presets and files that must exist"),
    ("/dstune/model/", lambda v: True, "sizes of a model that must fit each other; files"),
    ("/dstune/templates", lambda v: True, "files that must exist"),
    ("/dstune/workload/table", lambda v: True, "files that must exist"),
    ("/dstune/sequence_length", lambda v: True, "no more than the model has positions"),
    ("/dstune/resources/num_gpus", lambda v: isinstance(v, (int, float)) and v > 1e6,
     "members beyond what can be counted"),
    ("/dstune/device_memory", lambda v: isinstance(v, str), "amounts beyond 64 bits"),
    ("/autotuning/start_profile_step", lambda v: True, "not after end_profile_step"),
    ("/autotuning/end_profile_step", lambda v: True, "not before start_profile_step"),
    ("/autotuning/max_train", lambda v: True, "not below the minimum"),
    ("/autotuning/min_train", lambda v: True, "not above the maximum; at least one batch size"),
    ("/train_batch_size", lambda v: True, "must be micro-batch x accumulation x group for a member"),
    ("/optimizer/type", lambda v: True, "some are built; SGD is untested with ZeRO"),
    ("/optimizer/params", lambda v: True, "each optimizer takes its own"),
    ("/zero_optimization/mics_shard_size", lambda v: True, "above 0 it is not built"),
    ("/zero_optimization/allgather_bucket_size", lambda v: True, "even"),
    ("/zero_optimization/offload_optimizer/ratio", lambda v: True, "below 1 at stage 3 only"),
    ("/bfloat16", lambda v: True, "another name of bf16"),
    ("/bf16/bf16_", lambda v: True, "need others"),
    ("/fp16/fp16_master", lambda v: True, "needs others"),
    ("/data_types/grad_accum_dtype", lambda v: True, "the mode's or fp32"),
    ("/fp16/loss_scale_window", lambda v: True, "above 0 with a dynamic loss scale"),
    ("/fp16/min_loss_scale", lambda v: True, "above 0 with a dynamic loss scale"),
    ("/scheduler/type", lambda v: True, "keys that a scheduler needs"),
    ("/activation_checkpointing/contiguous_memory_optimization", lambda v: True, "needs others"),
]


def is_number_in_text(value):
    return isinstance(value, str) and value.strip().lstrip("+-").replace(".", "").isdigit()


def why_not_said(pointer, value):
    for start, test, why in NOT_SAID:
        if pointer.startswith(start) and test(value):
            return why
    values = value if isinstance(value, list) else [value]
    if any(is_number_in_text(one) for one in values):
        return "the range of a number written as a text"
    if any(isinstance(one, int) and not isinstance(one, bool) and abs(one) >= 2**63 for one in values):
        return "integers beyond 64 bits"
    if any(isinstance(one, str) and one.startswith("$") for one in values):
        return "variables that are not defined"
    return None


def resolve(schema, node):
    """What a reference stands for, with what is said beside it."""
    while "$ref" in node:
        beside = {key: value for key, value in node.items() if key != "$ref"}
        node = {**schema["$defs"][node["$ref"].rsplit("/", 1)[1]], **beside}
    return node


def keys_below(schema, node, pointer=""):
    """Every key of every section, as (pointer, its schema)."""
    node = resolve(schema, node)
    for key, value in node.get("properties", {}).items():
        yield f"{pointer}/{key}", value
        for form in resolve(schema, value).get("anyOf", [value]):
            if resolve(schema, form).get("type") == "object":
                yield from keys_below(schema, form, f"{pointer}/{key}")


def own_values(schema, node):
    """Limits, examples and defaults that a key's schema names, and what is just outside."""
    node = resolve(schema, node)
    found = list(node.get("examples", [])) + [w.swapcase() for w in node.get("examples", [])]
    if "default" in node:
        found += [node["default"], [node["default"]], [node["default"], node["default"]]]
    if "const" in node:
        found.append(node["const"])
    for name, step in (("minimum", -1), ("maximum", 1)):
        if name in node:
            found += [node[name], node[name] + step]
    for form in node.get("anyOf", []):
        found += own_values(schema, form)
    return found


def with_value(pointer, value, folder):
    document = copy.deepcopy(BASE)
    keys = pointer[1:].split("/")
    place = document
    for key in keys[:-1]:
        if not isinstance(place.get(key), dict):
            place[key] = {}
        place = place[key]
    if pointer.startswith("/dstune/workload/") and keys[-1] != "type":
        kind = {"step_time_s": "synthetic", "library": "plugin"}.get(keys[-1], "replay")
        place["type"] = kind
        if kind == "replay":
            place["table"] = str(folder / "table.json")
    if keys[-1] == "hf_config":
        place.clear()
    place[keys[-1]] = value
    return document


def is_taken(binary, document, path, plan_validator):
    path.write_text(json.dumps(document))
    # Jobs that start at once clash in a folder that they share.
    session = path.with_suffix("")
    session.mkdir()
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                       TMPDIR=str(session))
    done = subprocess.run([binary, "--dry-run", "--quiet", "--format", "json", str(path)],
                          env=environment, capture_output=True, text=True, timeout=120)
    shutil.rmtree(session, ignore_errors=True)
    if done.returncode not in (0, 3, 4):
        raise RuntimeError(f"{done.returncode}: {done.stderr}\n{json.dumps(document)}")
    if done.returncode != 3:
        plan_validator.validate(json.loads(done.stdout))
    return done.returncode != 3, done.stderr


def documents(schema, folder):
    for pointer, node in keys_below(schema, schema):
        seen = set()
        for value in VALUES + own_values(schema, node):
            text = json.dumps(value)
            if text not in seen:
                seen.add(text)
                yield pointer, value, with_value(pointer, value, folder)
    for path in sorted((ROOT / "scripts/spaces").glob("*.json")):
        lines = [line for line in path.read_text().splitlines() if not line.lstrip().startswith("//")]
        document = json.loads("\n".join(lines))
        document.setdefault("dstune", {})["model"] = MODEL
        document["dstune"]["sequence_length"] = 8
        yield path.name, None, document


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", default=str(ROOT / "build/release/dstune-mpi"))
    parser.add_argument("--samples", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="start of the pointers to try")
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    schema = json.loads((ROOT / "docs/space.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    plan_schema = json.loads((ROOT / "docs/plan.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(plan_schema)
    plan_validator = jsonschema.Draft202012Validator(plan_schema)

    wrong, excluded, taken = [], {}, 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "table.json").write_text('{"z0_gas1_tmbspg1": {"step_time_s": 1}}')
        cases = [case for case in documents(schema, folder) if case[0].startswith(given.only)]
        if given.samples and given.samples < len(cases):
            cases = random.Random(given.seed).sample(cases, given.samples)

        def judge(numbered):
            number, (pointer, value, document) = numbered
            says, message = is_taken(given.binary, document, folder / f"{number}.json", plan_validator)
            return pointer, value, validator.is_valid(document), says, message

        with concurrent.futures.ThreadPoolExecutor(given.jobs) as pool:
            for pointer, value, schema_says, program_says, message in pool.map(judge, enumerate(cases)):
                taken += program_says
                if schema_says == program_says:
                    continue
                why = why_not_said(pointer, value) if schema_says else None
                if why:
                    excluded[why] = excluded.get(why, 0) + 1
                    continue
                wrong.append(pointer)
                verdict = "takes" if schema_says else "refuses"
                print(f"the schema alone {verdict} {pointer} = {json.dumps(value)}\n{message}", end="")
    print(f"{len(cases)} documents, {taken} taken by the program, {len(wrong)} judged differently")
    for why, count in sorted(excluded.items()):
        print(f"  {count} that a schema can not refuse: {why}")
    return 1 if wrong or not cases else 0


if __name__ == "__main__":
    sys.exit(main())
