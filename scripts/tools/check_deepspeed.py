#!/usr/bin/env python3
"""dstune-mpi against the installed DeepSpeed, without a GPU.

check FILE|FOLDER...   Does DeepSpeed take these configs and train one step with each? A plan's JSON,
                       a results folder, an experiment file, or a config. Exit code 1 where it does not.
add [--data FOLDER]    Adds the installed release to the test data: every key that it reads, with type,
    [--keys FILE]      default and range, and its verdict on configs with one wrong key. Adds its new
                       keys to the table of keys, as far as DeepSpeed describes them, and prints what
                       else has changed.
"""

import argparse
import json
import multiprocessing
import pathlib
import sys

import check_deepspeed_corruptions
import check_deepspeed_engine
import check_deepspeed_rows
import check_deepspeed_schema

DATA = pathlib.Path(__file__).resolve().parents[2] / "mpi_tests/unit/core/data"


def configs_in(path):
    """(name, group size, config) of everything in a file or results folder."""
    if path.is_dir():
        files = [*path.rglob("ds_config*.json")]
        if not files:
            raise SystemExit(f"{path}: no ds_config*.json in it")
        for file in sorted(files):
            yield from configs_in(file)
        return
    content = json.loads(path.read_text())
    if "experiments" in content:
        for experiment in content["experiments"]:
            if experiment["status"] != "pruned":
                yield f"{path}: {experiment['name']}", experiment["num_gpus"], experiment["ds_config"]
    elif "ds_config" in content:
        yield str(path), group_size(content), content["ds_config"]
    else:
        beside = path.parent / "exp.json"
        size = group_size(json.loads(beside.read_text())) if beside.exists() else implied(content)
        yield str(path), size, content


def group_size(experiment):
    return experiment["num_gpus"] * experiment.get("num_nodes", 1)


def implied(config):
    """The number of ranks that a config's three batch sizes speak of."""
    samples = config.get("train_batch_size", 1)
    a_rank = config.get("train_micro_batch_size_per_gpu", 1) * config.get("gradient_accumulation_steps", 1)
    return max(1, samples // a_rank)


def refusals(size, configs):
    """[(name, refusal)]; in a process of its own, since DeepSpeed knows one number of ranks."""
    engine = check_deepspeed_engine.Engine(size)
    return [(name, engine.refusal(config)) for name, config in configs]


def check(paths):
    by_size = {}
    for path in paths:
        for name, size, config in configs_in(path):
            by_size.setdefault(size, []).append((name, config))
    count = refused = undecided = 0
    for size, configs in sorted(by_size.items()):
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            verdicts = pool.apply(refusals, (size, configs))
        for name, refusal in verdicts:
            count += 1
            if refusal is None:
                continue
            if check_deepspeed_corruptions.is_for_want_of_a_gpu(refusal):
                undecided += 1
                continue
            refused += 1
            print(f"{name}: refused by DeepSpeed's {refusal.where}: {refusal.message}")
    print(f"{count} configs, {refused} refused"
          + (f", {undecided} taken as configs but not run: they need a GPU" if undecided else ""))
    if count == 0:
        raise SystemExit("nothing to check")
    return 1 if refused else 0


def add(folder, keys):
    engine = check_deepspeed_engine.Engine(4)
    tables = check_deepspeed_schema.read_all(folder)
    previous = check_deepspeed_schema.previous_of(tables, engine.version)
    table = check_deepspeed_schema.schema(engine, previous)
    stem = folder / f"deepspeed_{engine.version}"
    check_deepspeed_schema.write(table, pathlib.Path(f"{stem}_schema.json"))
    print(f"{stem}_schema.json: {len(table['keys'])} keys, {len(table['removed'])} refused by name")
    if previous:
        print(*check_deepspeed_schema.rows_to_add(previous, table), sep="\n", flush=True)
    else:
        print("No older release to compare with: look through the keys.", flush=True)
    if check_deepspeed_schema.is_newest(tables, engine.version):
        print(*check_deepspeed_rows.add_to(keys, table), sep="\n", flush=True)
    check_deepspeed_corruptions.record(engine, pathlib.Path(f"{stem}_corruptions.jsonl"),
                                       check_deepspeed_schema.read_all(folder))


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("check").add_argument("paths", type=pathlib.Path, nargs="+")
    adding = commands.add_parser("add")
    adding.add_argument("--data", type=pathlib.Path, default=DATA)
    adding.add_argument("--keys", type=pathlib.Path, default=check_deepspeed_rows.KEYS)
    options = parser.parse_args()
    if options.command == "check":
        return check(options.paths)
    add(options.data.resolve(), options.keys)
    return 0


if __name__ == "__main__":
    sys.exit(main())
