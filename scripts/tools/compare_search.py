#!/usr/bin/env python3
"""Searches the recorded spaces with other programs' tuners, for comparison with mpi_tests/bench/search_bench.

    pip install optuna                  # --tuner tpe: Optuna's TPE
    pip install deepspeed xgboost       # --tuner deepspeed: DeepSpeed's ModelBasedTuner itself
    scripts/tools/compare_search.py [--tuner tpe|deepspeed] [--seeds 50] [--share 15] mpi_tests/bench/tables/*.json

TPE has no rule by which it stops: it gets a share (in percent) of the members as its number of experiments. It
starts with its usual 10 random ones (fewer where the share is smaller), and is told, at no cost, what it has asked
for before and what the space lacks. DeepSpeed's tuner runs with its defaults (early stopping 5, at most 50
experiments, one at a time) on the members in their order; its experiments are answered from the table. Trials draw
their steps from the recorded ones in blocks, as search_bench does. Prints columns like those of search_bench.

A table that scripts/tools/deepspeed_fidelity.py has recorded is searched as mpi_tests/bench/verify_bench does: a run
draws one of DeepSpeed's passes, the best is named by the first, third, … pass, and an answer is judged by the others.
"""

import argparse
import json
import pathlib
import random
import statistics
import tempfile
import time

WARMUP_STEPS = 3
BLOCK_STEPS = 4


class Table:
    def __init__(self, path):
        self.name = path.stem
        self.rows = json.loads(path.read_text())
        made = json.loads(path.with_suffix(".made.json").read_text())
        self.runs = {name: member["runs"] for name, member in made["members"].items()}
        self.choices = {name: member["choices"] for name, member in made["members"].items()}
        self.keys = sorted({key for choice in self.choices.values() for key in choice})
        self.candidates = {key: self.sorted_values(key) for key in self.keys}
        self.name_of = {self.places(choice): name for name, choice in self.choices.items()}
        self.truth = {name: self.throughput(name, self.timed(name)) for name in self.rows}
        self.best = max(self.truth.values())
        self.steps = sum(map(self.num_steps, self.rows))
        self.seconds = sum(map(self.duration, self.rows))

    def sorted_values(self, key):
        values = []
        for choice in self.choices.values():
            if choice[key] not in values:
                values.append(choice[key])
        return sorted(values) if self.is_amount(values) else values

    @staticmethod
    def is_amount(values):
        return all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values)

    def places(self, choice):
        return tuple(self.candidates[key].index(choice[key]) for key in self.keys)

    def timed(self, name):
        return self.rows[name].get("step_times_s", [])[WARMUP_STEPS:]

    def run_length(self, name):
        """Timed steps of one of its runs, on average."""
        return max(1, len(self.timed(name)) // self.runs[name]) if self.timed(name) else 0

    def num_steps(self, name):
        return WARMUP_STEPS + self.run_length(name)

    def duration(self, name):
        return sum(self.rows[name].get("step_times_s", [])) / self.runs[name]

    def throughput(self, name, times):
        if not times:
            return 0.0
        choice = self.choices[name]
        batch = 1
        for key in ("/train_micro_batch_size_per_gpu", "/gradient_accumulation_steps", "num_gpus"):
            batch *= choice.get(key, 1)
        return batch / statistics.fmean(times)

    def drawn(self, name, generator):
        recorded = self.timed(name)
        times = []
        while recorded and len(times) < self.run_length(name):
            begin = generator.randrange(len(recorded))
            times += [recorded[(begin + step) % len(recorded)] for step in range(BLOCK_STEPS)]
        return self.throughput(name, times[:self.run_length(name)])

    def suggest(self, trial):
        """A number is one of a row, everything else one of a set."""
        places = []
        for key in self.keys:
            count = len(self.candidates[key])
            if self.is_amount(self.candidates[key]) and key != "/zero_optimization/stage":
                places.append(trial.suggest_int(key, 0, count - 1))
            else:
                places.append(trial.suggest_categorical(key, list(range(count))))
        return self.name_of.get(tuple(places))


class EngineTable(Table):
    """Of passes of DeepSpeed over a space: a run is one of them. Steps and times count runs."""

    def __init__(self, path):
        self.name = path.stem
        rows = json.loads(path.read_text())["experiments"]
        self.rows = {row["name"]: row for row in rows}
        self.choices = {row["name"]: self.flat({**row["ds_config"], "recompute": row.get("recompute"),
                                                "sequence_length": row.get("sequence_length")}) for row in rows}
        every = {key for choice in self.choices.values() for key in choice}
        for choice in self.choices.values():
            for key in every:
                choice.setdefault(key, None)
        differing = [key for key in every if len({json.dumps(one[key]) for one in self.choices.values()}) > 1]
        self.keys = sorted(key for key in differing if key != "/train_batch_size")
        self.candidates = {key: self.sorted_values(key) for key in self.keys}
        self.name_of = {self.places(choice): name for name, choice in self.choices.items()}
        self.passes = self.levelled({name: row["deepspeed"] for name, row in self.rows.items()})
        self.truth = {name: statistics.fmean(one[1::2]) for name, one in self.passes.items()}
        named = max(self.passes, key=lambda name: statistics.fmean(self.passes[name][::2]))
        self.best = self.truth[named]
        self.steps = self.seconds = len(self.rows)

    @classmethod
    def flat(cls, value, place=""):
        if not isinstance(value, dict):
            return {place: value}
        return {key: one for name, inner in value.items() for key, one in cls.flat(inner, f"{place}/{name}").items()}

    @staticmethod
    def levelled(passes):
        """Without what the machine had of its own in each pass."""
        means = {name: statistics.fmean(values) for name, values in passes.items()}
        count = max(map(len, passes.values()))
        levels = [statistics.median(values[number] / means[name] for name, values in passes.items()
                                    if number < len(values)) for number in range(count)]
        return {name: [value / level for value, level in zip(values, levels)] for name, values in passes.items()}

    def num_steps(self, name):
        return 1

    duration = num_steps

    def drawn(self, name, generator):
        return generator.choice(self.passes[name])


def table_of(path):
    return EngineTable(path) if "experiments" in json.loads(path.read_text()) else Table(path)


def search_with_tpe(table, seed, share):
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    generator = random.Random(seed)
    most = max(1, int(len(table.rows) * share / 100))
    began = time.monotonic()
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(
        seed=seed, n_startup_trials=min(10, most // 2 + 1)))
    seen = {}
    for _ in range(20 * most):
        trial = study.ask()
        name = table.suggest(trial)
        if name is None:
            study.tell(trial, state=optuna.trial.TrialState.PRUNED)
            continue
        if name not in seen:
            seen[name] = table.drawn(name, generator)
        study.tell(trial, seen[name])
        if len(seen) == most:
            break
    return outcome(table, seen, began)


class Answers:
    """Stands where DeepSpeed's ResourceManager stands."""

    def __init__(self, table, folder, generator):
        self.table, self.folder, self.generator = table, folder, generator
        self.exps_dir = folder
        self.seen = {}
        self.finished_experiments = {}

    def experiment(self, name):
        """What a DeepSpeed config has of it: the tuner looks at the numbers in it."""
        config = {key: value for key, value in self.table.choices[name].items() if key.startswith("/")}
        config["autotuning"] = {"metric_path": f"{self.folder}/{name}.metrics"}
        return {"name": name, "ds_config": config}

    def schedule_experiments(self, paths):
        for path in paths:
            experiment = json.loads(pathlib.Path(path).read_text())
            name = experiment["name"]
            self.seen[name] = self.table.drawn(name, self.generator)
            pathlib.Path(experiment["ds_config"]["autotuning"]["metric_path"]).write_text(
                json.dumps({"throughput": self.seen[name]}))
            self.finished_experiments[len(self.seen)] = (experiment, None)

    def run(self):
        pass

    def parse_results(self, _metric):
        best = max(self.finished_experiments.values(), key=lambda one: self.seen[one[0]["name"]])
        return best[0], self.seen[best[0]["name"]]

    def clear(self):
        self.finished_experiments = {}


def search_with_deepspeed(table, seed, _share):
    import numpy
    from deepspeed.autotuning.tuner import ModelBasedTuner

    numpy.random.seed(seed)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        answers = Answers(table, folder, random.Random(seed))
        tuner = ModelBasedTuner([answers.experiment(name) for name in table.rows], answers, "throughput", {})
        tuner.tune(sample_size=1, n_trials=50, early_stopping=5)
    return outcome(table, answers.seen, began)


def outcome(table, seen, began):
    chosen = max(seen, key=seen.get)
    return {"experiments": len(seen) / len(table.rows),
            "steps": sum(map(table.num_steps, seen)) / table.steps,
            "time": sum(map(table.duration, seen)) / table.seconds,
            "regret": 1 - table.truth[chosen] / table.best, "tuner_s": time.monotonic() - began}


TUNERS = {"tpe": ("TPE", search_with_tpe), "deepspeed": ("DeepSpeed's", search_with_deepspeed)}


def print_row(name, tuner, searches):
    mean = {key: statistics.fmean(one[key] for one in searches) for key in searches[0]}
    regrets = sorted(one["regret"] for one in searches)
    late = regrets[(len(regrets) * 95 + 99) // 100 - 1]
    close = sum(regret <= 0.01 for regret in regrets) / len(regrets)
    print(f"| {name} | {tuner} | {100 * mean['experiments']:.1f} | {100 * mean['steps']:.1f} | "
          f"{100 * mean['time']:.1f} | {100 * mean['regret']:.2f} | {100 * late:.2f} | {100 * close:.0f} | "
          f"{1000 * mean['tuner_s']:.1f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="+", type=pathlib.Path)
    parser.add_argument("--tuner", choices=TUNERS, default="tpe")
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--share", type=float, default=15, help="percent of the members that are run")
    arguments = parser.parse_args()
    tuner, search = TUNERS[arguments.tuner]
    print("| space (members) | tuner | experiments % | steps % | time % | mean regret % | 95th % | within 1 % | "
          "tuner ms |\n|---|---|---|---|---|---|---|---|---|")
    everything = []
    for path in sorted(path for path in arguments.tables if not path.name.endswith(".made.json")):
        table = table_of(path)
        searches = [search(table, seed, arguments.share) for seed in range(arguments.seeds)]
        print_row(f"{table.name} ({len(table.rows)})", tuner, searches)
        everything += searches
    print_row("all", tuner, everything)


if __name__ == "__main__":
    main()
