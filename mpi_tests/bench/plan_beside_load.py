#!/usr/bin/env python3
"""Whether a plan on a busy machine has the order of a plan on a quiet one.

    plan_beside_load.py PROGRAM [--load 8] [--rounds 1] [--bare] [NAME ...]

For each space of `mpi_tests/bench/spaces/fidelity-NAME.json`, PROGRAM plans it without others and
beside so many processes that never rest, in turns. Shown are rank correlations (Spearman): of the
two plans, and of each with DeepSpeed's throughputs of the same members in
`mpi_tests/bench/fidelity/NAME.json`. The last column is the ratio of the plans' throughputs, the
middle one of the members'. --bare: our own step's times instead of the target's. The machine is to
be quiet otherwise; what the system says of its load is printed.
"""

import argparse
import contextlib
import json
import multiprocessing
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

BENCH = pathlib.Path(__file__).resolve().parent
NAMES = ("both-gpt2-batches", "both-llama-gathers", "both-qwen2-offload", "judge-qwen2-knobs",
         "judge-llama-knobs")


def spin():
    number = 1
    while True:
        number = number * 3 % 1000003


@contextlib.contextmanager
def load(count):
    """So many busy processes, each in a session of its own.

    The kernel shares processors among sessions first where autogroups are on. So all of them
    together would take half of the machine if they shared one.
    """
    def run():
        os.setsid()
        spin()
    busy = [multiprocessing.Process(target=run, daemon=True) for _ in range(count)]
    for process in busy:
        process.start()
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.join()


def ranks(values):
    order = sorted(range(len(values)), key=values.__getitem__)
    result = [0.0] * len(values)
    begin = 0
    while begin < len(order):
        end = begin
        while end < len(order) and values[order[end]] == values[order[begin]]:
            end += 1
        for place in order[begin:end]:
            result[place] = (begin + end - 1) / 2
        begin = end
    return result


def rank_correlation(first, second):
    return statistics.correlation(ranks(first), ranks(second))


def key_of(config, recompute, sequence_length):
    return json.dumps([config, recompute, sequence_length], sort_keys=True)


def plan(program, space, key):
    """Throughput by name of the members that are planned."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([program, "plan", "--format", "json", "--results-dir", folder, space],
                              capture_output=True, text=True, check=True)
    members = json.loads(done.stdout)["experiments"]
    return {one["name"]: one["predicted"][key] for one in members if one["status"] == "planned"}


def main():
    arguments = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    arguments.add_argument("program")
    arguments.add_argument("--load", type=int, default=8)
    arguments.add_argument("--rounds", type=int, default=1)
    arguments.add_argument("--bare", action="store_true")
    arguments.add_argument("names", nargs="*", default=NAMES, metavar="NAME")
    given = arguments.parse_args()
    key = "throughput" if given.bare else "target_throughput"
    print(f"load before: {os.getloadavg()[0]:.1f}", file=sys.stderr)
    print("| space | members | plans | quiet with DeepSpeed | busy with DeepSpeed | busy / quiet |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name in given.names:
        table = json.loads((BENCH / "fidelity" / f"{name}.json").read_text())
        there = {one["name"]: statistics.median(one["deepspeed"]) for one in table["experiments"]}
        rows = []
        for _ in range(given.rounds):
            quiet = plan(given.program, BENCH / "spaces" / f"fidelity-{name}.json", key)
            with load(given.load):
                busy = plan(given.program, BENCH / "spaces" / f"fidelity-{name}.json", key)
            members = [one for one in there if one in quiet and one in busy]
            first, second = [quiet[one] for one in members], [busy[one] for one in members]
            recorded = [there[one] for one in members]
            rows.append((rank_correlation(first, second), rank_correlation(first, recorded),
                         rank_correlation(second, recorded),
                         statistics.median(b / a for a, b in zip(first, second)), len(members)))
        middle = [statistics.median(column) for column in zip(*rows)]
        print(f"| {name} | {middle[4]:.0f} of {len(there)} | {middle[0]:.3f} | {middle[1]:.3f} | "
              f"{middle[2]:.3f} | {middle[3]:.2f} |", flush=True)


if __name__ == "__main__":
    main()
