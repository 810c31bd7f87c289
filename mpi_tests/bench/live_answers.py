#!/usr/bin/env python3
"""Answers of jobs on a disturbed machine, and what they are worth once it is quiet.

    live_answers.py FOLDER 4:scripts/spaces/quickstart.json 2:scripts/spaces/llama.json [--jobs 10] [--rounds 20]

Each space is tuned on RANKS ranks --jobs times by race, with "target": "self", while one core is loaded and freed every
few seconds, now one, now another. Then, without the load, the grid runs once, which names the ten best. These and all
answers are run --rounds times more, in turns. Every second round names the best, the others judge it and the answers.
Prints each job's answer, how far it is below the best, and the chance that it stated; then how stated chances agree
with what was so. FOLDER keeps what has ended: the same command goes on from there. On a machine that is quiet
otherwise, from the checkout, after building; mpirun's settings come from the environment.
"""

import argparse
import json
import pathlib
import random
import statistics
import subprocess
import time

from beside_autotuner import read_commented
from disturbance import disturbance
from grid_and_race import CHECKOUT, read

NUM_BEST = 10
ROUNDS_OF_A_JOB = 5
CLOSE = 0.03


class Space:
    def __init__(self, given, words):
        self.ranks, path = words.split(":", 1)
        path = pathlib.Path(path)
        self.given, self.name = given, path.stem
        self.folder = given.folder / path.stem
        self.folder.mkdir(parents=True, exist_ok=True)
        self.document = read_commented(path)
        self.document["dstune"]["target"] = "self"
        model = self.document["dstune"]["model"]
        if isinstance(model, dict) and "hf_config" in model:
            model["hf_config"] = str((path.parent / model["hf_config"]).resolve())
        for key in ("tuner_type", "tuner_num_trials"):
            self.document["autotuning"].pop(key, None)

    def tune(self, results, *options, ranks=None, **changes):
        """A job, unless it has ended before."""
        if (results / "optimal.json").exists():
            return
        document = {**self.document, "dstune": {**self.document["dstune"], **changes}}
        space = results.with_suffix(".space.json")
        space.write_text(json.dumps(document, indent=1))
        subprocess.run(["mpirun", "-np", str(ranks or self.ranks), str(CHECKOUT / "build" / "release" / "dstune-mpi"),
                        "--quiet", "--no-progress", "--overwrite", "--results-dir", str(results), "--exps-dir",
                        f"{results}.exps", *options, str(space)], check=True, stdout=subprocess.DEVNULL)

    def disturbed_jobs(self):
        answers = []
        for job in range(self.given.jobs):
            results = self.folder / f"job{job + 1}"
            begin = time.monotonic()
            with disturbance(job):
                self.tune(results, "--tuner", "race", "--seed", str(job))
            took = results.with_suffix(".seconds")
            if not took.exists():
                took.write_text(f"{time.monotonic() - begin:.1f}")
            optimal = read(results / "optimal.json")
            answers.append({"seconds": float(took.read_text()), "experiment": read(results / optimal["name"] / "exp.json"),
                            "tried": len(list(results.glob("*/metrics.json"))), **optimal})
        return answers

    def ten_best(self):
        results = self.folder / "grid"
        self.tune(results, "--tuner", "gridsearch")
        found = [(read(path)["throughput"], read(path.parent / "exp.json")) for path in results.glob("*/metrics.json")
                 if read(path)["status"] == "ok"]
        return [experiment for _, experiment in sorted(found, key=lambda each: -each[0])[:NUM_BEST]]

    def truth(self, experiments):
        """{name: samples/s of each round}. Each group is as large as its job, so that every run is alone."""
        found = {name: [] for name in experiments}
        kinds = sorted({kind_of(experiment) for experiment in experiments.values()})
        for job in range(self.given.rounds // ROUNDS_OF_A_JOB):
            for kind in kinds:
                mode, ranks = kind
                names = [name for name, experiment in experiments.items() if kind_of(experiment) == kind]
                results, options = self.folder / f"truth{job + 1}.{mode}.{ranks}", []
                for turn in range(ROUNDS_OF_A_JOB):
                    for name in random.Random(f"{job} {turn}").sample(names, len(names)):
                        file = self.folder / f"{name}.{turn}.json"
                        kept = {key: experiments[name][key] for key in ("ds_config", "num_gpus", "num_nodes")}
                        file.write_text(json.dumps({**kept, "name": f"{name}.{turn}"}))
                        options += ["--experiments", str(file)]
                self.tune(results, "--tuner", "gridsearch", *options, ranks=ranks, activation_recompute=[mode],
                          resources={"num_gpus": ranks})
                for name in names:
                    found[name] += [read(results / f"{name}.{turn}" / "metrics.json")["throughput"]
                                    for turn in range(ROUNDS_OF_A_JOB)]
        return found


def kind_of(experiment):
    """What one job of --experiments has in common: recompute and group size."""
    return experiment["recompute"], experiment["num_gpus"] * experiment["num_nodes"]


def judged(space):
    answers = space.disturbed_jobs()
    experiments = {each["name"]: each for each in space.ten_best()}
    experiments.update({answer["name"]: answer["experiment"] for answer in answers})
    truth = space.truth(experiments)
    best = max(truth, key=lambda name: statistics.fmean(truth[name][::2]))
    even = {name: statistics.fmean(values[1::2]) for name, values in truth.items()}
    print(f"\n{space.name}: {len(truth)} members of {space.given.rounds} rounds; the best is {best}.\n")
    print("| job | seconds | experiments | answer | below the best, % | stated: the best of what was measured, "
          "something else is better | within its interval |\n|---|---|---|---|---|---|---|")
    rows = []
    for job, answer in enumerate(answers, 1):
        below = 1 - even[answer["name"]] / even[best]
        is_inside = answer["ci_low"] <= statistics.fmean(truth[answer["name"]]) <= answer["ci_high"]
        rows.append((below, answer["probability_best"], answer["name"] == best))
        print(f"| {job} | {answer['seconds']:.0f} | {answer['tried']} | {answer['name']} | {100 * below:.1f} | "
              f"{answer['probability_best']:.2f}, {answer['chance_of_better'] or 0:.2f} | {'yes' if is_inside else 'no'} |")
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("spaces", nargs="+", metavar="RANKS:SPACE")
    parser.add_argument("--jobs", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=20)
    given = parser.parse_args()
    given.folder = given.folder.resolve()
    rows = [row for words in given.spaces for row in judged(Space(given, words))]
    close = sum(below <= CLOSE for below, _, _ in rows)
    print(f"\n{close} of {len(rows)} answers are within {100 * CLOSE:.0f} % of the best. Answers were stated to be the best "
          f"with {statistics.fmean(stated for _, stated, _ in rows):.2f} on average; "
          f"{sum(is_best for _, _, is_best in rows)} of {len(rows)} are what the rounds name, "
          f"{sum(below <= 0.01 for below, _, _ in rows)} are within 1 % of it.")


if __name__ == "__main__":
    main()
