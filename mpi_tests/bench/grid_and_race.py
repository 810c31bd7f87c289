#!/usr/bin/env python3
"""Searches a space with the grid and with race, in turns, and says what each took and found.

    mpi_tests/bench/grid_and_race.py [--times 2] mpi_tests/bench/spaces/gpt2-sizes.json 2

On a quiet machine, from the checkout, after building; mpirun's settings come from the environment. All answers
are then run five times more, in turns, in one job: what they are worth is the mean of these runs, in which nothing
was chosen for its luck.
"""

import argparse
import datetime
import json
import math
import pathlib
import statistics
import subprocess
import tempfile

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]
TUNERS = ("gridsearch", "race")
FINAL_RUNS = 5


def tune(arguments, folder, *options):
    subprocess.run(["mpirun", "-np", str(arguments.ranks), str(CHECKOUT / "build" / "release" / "dstune-mpi"), "--quiet",
                    "--no-progress", "--results-dir", str(folder), "--exps-dir", f"{folder}.exps", *options,
                    str(arguments.space)], check=True, stdout=subprocess.DEVNULL)


def read(path):
    return json.loads(path.read_text())


def runs_of(folder):
    """Every run of a search, repeats too: the table's columns of metrics.json and validation.json."""
    validation = read(folder / "validation.json")
    repeats = [run for key in ("finalists", "repeats_in_search") for row in validation[key] for run in row["runs"]]
    first = [read(path) for path in folder.glob("*/metrics.json")]
    return first, repeats


def seconds_between(events):
    times = [datetime.datetime.fromisoformat(event["time"].replace("Z", "+00:00")) for event in events]
    return (max(times) - min(times)).total_seconds()


def print_search(turn, tuner, folder):
    first, repeats = runs_of(folder)
    steps = sum(len(run["step_times_s"]) for run in first + repeats)
    raced_out = sum(run["status"] == "raced_out" for run in first)
    journal = [json.loads(line)["event"] for line in (folder / "journal.jsonl").read_text().splitlines()]
    took_s = seconds_between([event for event in journal if event["kind"] in ("job_started", "job_finished")])
    optimal = read(folder / "optimal.json")
    half = 50 * math.log(optimal["ci_high"] / optimal["ci_low"])
    print(f"| {turn} | {tuner} | {len(first)} ({raced_out} raced out) | {len(repeats)} | {steps} | {took_s:.1f} | "
          f"{optimal['name']} | {optimal['value']:.4g} ± {half:.1f} % |", flush=True)
    return optimal["name"]


def measure_answers(arguments, folder, experiments):
    """Samples a second of each, from runs A B C A B C …; the folder of a run has its number."""
    options = []
    for number in range(FINAL_RUNS):
        for name, experiment in experiments.items():
            file = folder / f"{name}.{number}.json"
            file.write_text(json.dumps({**experiment, "name": f"{name}.{number}"}))
            options += ["--experiments", str(file)]
    tune(arguments, folder / "answers", "--tuner", "gridsearch", *options)
    return {name: [read(folder / "answers" / f"{name}.{number}" / "metrics.json")["throughput"]
                   for number in range(FINAL_RUNS)] for name in experiments}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("space", type=pathlib.Path)
    parser.add_argument("ranks", type=int)
    parser.add_argument("--times", type=int, default=2)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        experiments, answers = {}, {tuner: [] for tuner in TUNERS}
        print("| turn | tuner | experiments | repeats | steps | seconds | answer | reported samples/s |\n"
              "|---|---|---|---|---|---|---|---|")
        for turn in range(1, arguments.times + 1):
            for tuner in TUNERS:
                folder = pathlib.Path(scratch, f"{tuner}{turn}")
                tune(arguments, folder, "--tuner", tuner)
                name = print_search(turn, tuner, folder)
                experiment = read(folder / name / "exp.json")
                experiments[name] = {key: experiment[key] for key in ("ds_config", "num_gpus", "num_nodes")}
                answers[tuner].append(name)
        measured = measure_answers(arguments, pathlib.Path(scratch), experiments)
        best = max(statistics.fmean(values) for values in measured.values())
        print("\n| answer | of | samples/s of its runs afterwards | below the best, % |\n|---|---|---|---|")
        for name, values in measured.items():
            of = ", ".join(f"{tuner} {turn}" for tuner in TUNERS
                           for turn, answer in enumerate(answers[tuner], 1) if answer == name)
            print(f"| {name} | {of} | {', '.join(f'{value:.4g}' for value in values)} | "
                  f"{100 * (1 - statistics.fmean(values) / best):.2f} |")


if __name__ == "__main__":
    main()
