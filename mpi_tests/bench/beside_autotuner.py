#!/usr/bin/env python3
"""Tunes the same space with DeepSpeed's own autotuner and with jobs of ours, in turns.

    beside_autotuner.py FOLDER --space scripts/spaces/engine/language-model/space.json --python VENV \\
        --micro-batches 12,24 [--stages 0,1,2,3] [--ranks 2] [--rounds 2] \\
        [--systems autotuner,engine,told,own,verify] [--model FILE|JSON] [--window 3,5] [--command 'train.py WORDS…']

Systems:
    autotuner   `deepspeed --autotuning tune`, its fast mode: one launch for each member and one for its profile
    engine      `mpirun dstune-mpi` with the workload deepspeed and the tuner race, the same script
    told        the same job, which knows the model and so predicts (needs --model)
    own         a job with our own step (needs --model)
    verify      our own step first, then DeepSpeed's engine (`dstune.verify`; needs --model)
The space is the product of --stages and --micro-batches. The global batch of every member is that of the largest
micro-batch without accumulation: DeepSpeed's autotuner sets accumulation so. Everything else comes from the space's
file, but for other keys of zero_optimization, which the autotuner drops. Each system runs in a copy of the script's
folder, from start to answer, imports counted.

DeepSpeed's launcher runs on CPUs as it is. LOCAL_SIZE tells it how many devices the host has, there is no hostfile
and so no ssh, and OMP_NUM_THREADS gives each rank its thread. One thing is replaced: after each experiment the
autotuner runs `pdsh … pkill -f NAME` to end what is left, and a `pdsh` that does nothing comes first in PATH. The
environment needs tabulate (`pip install tabulate`).

--window is start_profile_step,end_profile_step of both: DeepSpeed runs end + 1 optimizer steps of each member, our
jobs at least start to warm up and end - start + 1 timed. More steps, or a longer sequence by --command, make members
that take long.

Then each answer is run for --steps optimizer steps in launches of its own, --passes times, in turns (A B C C B A).
FOLDER/results.json has what has ended; the same command goes on from there. Prints the tables of what is there, with
--only-print nothing else. Run it on a quiet machine after building; mpirun's settings come from the environment.
"""

import argparse
import json
import os
import pathlib
import re
import shlex
import shutil
import statistics
import subprocess
import sys
import time

from engine_launches import launch, remove_buffers
from grid_and_race import CHECKOUT, read, runs_of

SYSTEMS = ("autotuner", "engine", "told", "own", "verify")
WARM_STEPS = 3  # of a launch, not counted


def read_commented(path):
    """JSON with comments."""
    tokens = r'"(?:\\.|[^"\\])*"|//[^\n]*|/\*.*?\*/'
    text = re.sub(tokens, lambda token: token[0] if token[0][0] == '"' else " ", path.read_text(), flags=re.S)
    return json.loads(text)


def integers(text):
    return [int(word) for word in text.split(",")]


def parsed():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--space", type=pathlib.Path, required=True, help="beside the training script")
    parser.add_argument("--python", type=pathlib.Path, required=True, help="a virtual environment with DeepSpeed")
    parser.add_argument("--micro-batches", type=integers, required=True)
    parser.add_argument("--stages", type=integers, default=[0, 1, 2, 3])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--systems", type=lambda text: text.split(","), default=["autotuner", "engine"])
    parser.add_argument("--model", help="a config.json, or dstune.model as JSON")
    parser.add_argument("--sequence-length", type=int, help="of our own step")
    parser.add_argument("--command", help="the script and its words, for those of the space's training_command")
    parser.add_argument("--window", type=integers, default=[3, 5])
    parser.add_argument("--trial-budget", type=float, help="dstune.trial_budget_s")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--passes", type=int, default=2)
    parser.add_argument("--master-port", type=int, default=31500, help="the first of as many as there are launches")
    parser.add_argument("--program", type=pathlib.Path, default=CHECKOUT / "build" / "release" / "dstune-mpi")
    parser.add_argument("--only-print", action="store_true")
    given = parser.parse_args()
    if set(given.systems) - set(SYSTEMS):
        parser.error(f"systems are {', '.join(SYSTEMS)}")
    if {"told", "own", "verify"} & set(given.systems) and not given.model:
        parser.error("told, own and verify need --model")
    if any(max(given.micro_batches) % one for one in given.micro_batches):
        parser.error("every micro-batch has to divide the largest one: the global batch is the same for all")
    for path in ("folder", "space", "python", "program"):
        setattr(given, path, pathlib.Path(os.path.abspath(getattr(given, path))))
    return given


class Bench:
    """What is asked for, and what has ended so far."""

    def __init__(self, given):
        self.given = given
        self.document = read_commented(given.space)
        self.words = self.script_and_words()
        self.members = len(given.stages) * len(given.micro_batches)
        self.environment = {**os.environ, "OMP_NUM_THREADS": "1", "VIRTUAL_ENV": str(given.python)}
        self.asked = {key: getattr(given, key) for key in ("micro_batches", "stages", "ranks", "window", "steps",
                                                           "trial_budget", "model")}
        self.asked |= {"space": str(given.space), "words": self.words}
        self.file = given.folder / "results.json"
        self.results = read(self.file) if self.file.exists() else {"asked": self.asked, "runs": {}, "launches": {}}
        if self.results["asked"] != self.asked:
            raise SystemExit(f"{self.file} has results of another question:\n{self.results['asked']}\nTake a folder "
                             f"of its own for\n{self.asked}")

    def script_and_words(self):
        command = self.given.command or self.document["dstune"]["training_command"]
        words = shlex.split(command)
        script = next(index for index, word in enumerate(words) if word.endswith(".py"))
        return words[script:]

    def keep(self, kind, key, value):
        self.results[kind][key] = value
        self.file.parent.mkdir(parents=True, exist_ok=True)
        passing = self.file.with_suffix(".new")
        passing.write_text(json.dumps(self.results, indent=1))
        passing.replace(self.file)

    # The two forms of one space

    def autotuning(self):
        start, end = self.given.window
        ours = {"tuner_type", "tuner_early_stopping", "tuner_num_trials", "results_dir", "exps_dir", "overwrite"}
        kept = {key: value for key, value in self.document.get("autotuning", {}).items() if key not in ours}
        return {**kept, "enabled": True, "start_profile_step": start, "end_profile_step": end}

    def common(self):
        document = {key: value for key, value in self.document.items()
                    if key not in ("dstune", "train_batch_size", "gradient_accumulation_steps")}
        return document | {"autotuning": self.autotuning(),
                           "train_micro_batch_size_per_gpu": self.given.micro_batches,
                           "zero_optimization": {"stage": self.given.stages}}

    def space(self, system):
        given = self.given
        dstune = {key: value for key, value in self.document["dstune"].items() if key not in ("workload", "verify")}
        dstune |= {"training_command": shlex.join(["deepspeed", *self.words]).replace("'$CONFIG'", "$CONFIG"),
                   "resources": {"num_gpus": given.ranks}}
        if given.trial_budget:
            dstune["trial_budget_s"] = given.trial_budget
        if system in ("engine", "told"):
            dstune["workload"] = {"type": "deepspeed", "python": str(given.python)}
        if system != "engine":
            is_file = not given.model.lstrip().startswith("{")
            dstune["model"] = {"hf_config": os.path.abspath(given.model)} if is_file else json.loads(given.model)
            if given.sequence_length:
                dstune["sequence_length"] = given.sequence_length
        if system == "verify":
            dstune["verify"] = {"python": str(given.python)}
        return self.common() | {"dstune": dstune, "train_batch_size": given.ranks * max(given.micro_batches)}

    # A run of a system, from start to answer

    def command(self, system, folder):
        given = self.given
        if system != "autotuner":
            (folder / "space.json").write_text(json.dumps(self.space(system), indent=1))
            return ["mpirun", "-np", str(given.ranks), "--bind-to", "none", str(given.program), "--quiet",
                    "--no-progress", "--tuner", "race", "space.json"], self.environment
        (folder / "ds_config.json").write_text(json.dumps(self.common() | {"gradient_accumulation_steps": 1}, indent=1))
        tools = folder / "tools"
        tools.mkdir()
        (tools / "pdsh").write_text("#!/bin/sh\n")
        (tools / "pdsh").chmod(0o755)
        paths = [str(tools), str(given.python / "bin"), os.environ["PATH"]]
        words = [word.replace("$CONFIG", "ds_config.json") for word in self.words]
        return ["deepspeed", "--autotuning", "tune", "--master_port", str(given.master_port), *words], {
            **self.environment, "PATH": os.pathsep.join(paths), "LOCAL_SIZE": str(given.ranks),
            "DS_ACCELERATOR": "cpu"}

    def run(self, system, turn):
        folder = self.given.folder / f"{turn}.{system}"
        if folder.exists():
            shutil.rmtree(folder)
        shutil.copytree(self.given.space.parent, folder,
                        ignore=shutil.ignore_patterns("autotuning_results", "autotuning_exps", "checkpoints"))
        command, environment = self.command(system, folder)
        self.remove_all_buffers()
        load = os.getloadavg()[0]
        print(f"round {turn}, {system}: begins at {time.strftime('%H:%M:%S')}, load {load:.1f}", file=sys.stderr)
        with open(folder / "bench.log", "w", encoding="utf-8") as log:
            begin = time.perf_counter()
            code = subprocess.run(command, cwd=folder, env=environment, stdout=log, stderr=log, check=False).returncode
            took_s = time.perf_counter() - begin
        self.remove_all_buffers()
        results = folder / "autotuning_results"
        if code or not (results / "ds_config_optimal.json").exists():
            raise SystemExit(f"{system} has no answer (exit code {code}); see {folder}/bench.log")
        counted = self.count_autotuner(results) if system == "autotuner" else self.count_ours(results)
        self.keep("runs", f"{turn}.{system}", {"took_s": took_s, "load": load, **counted,
                                               "config": self.answer(results)})

    def remove_all_buffers(self):
        for launched in range(self.members + 1):
            remove_buffers(self.given.master_port + launched)

    def warm(self):
        """A launch beforehand: no system pays alone for the disk, or for what DeepSpeed compiles at its first use."""
        given = self.given
        config = self.common() | {"train_micro_batch_size_per_gpu": min(given.micro_batches),
                                  "zero_optimization": {"stage": min(given.stages)}}
        config.pop("autotuning")
        self.launch(config, 2)

    def launch(self, config, steps):
        given = self.given
        os.chdir(given.space.parent)
        return launch(str(given.python / "bin" / "python"), given.ranks, config, steps, self.words, threads=1)

    def count_autotuner(self, results):
        tried = [path.parent for path in results.glob("*/cmd.txt") if path.parent.name != "profile_model_info"]
        failed = [folder.name for folder in tried if not (folder / "metrics.json").exists()]
        rows = [[cell.strip() for cell in line.split("|")]
                for line in (results / "summary.txt").read_text().splitlines()]
        best = next(row[4] for row in rows if len(row) > 4 and row[1] == "global")
        return {"members": sorted(folder.name for folder in tried), "failed": failed, "engines": len(tried) + 1,
                "raced_out": 0, "answer": best}

    def count_ours(self, results):
        first, repeats = runs_of(results)
        plan = subprocess.run([str(self.given.program), "plan", "--format", "json", "space.json"], text=True,
                              cwd=results.parent, env=self.environment, stdout=subprocess.PIPE, check=True)
        members = sorted(row["name"] for row in json.loads(plan.stdout)["experiments"])
        by_engine = [read(path) for path in results.glob("*/verified.json")]
        return {"members": members, "own": len(first) if by_engine else None,
                "failed": [run["status"] for run in first if run["status"] not in ("ok", "raced_out")],
                "engines": len(by_engine or first) + len(repeats),
                "tried": len(by_engine or first),
                "raced_out": sum(run["status"] == "raced_out" for run in by_engine or first),
                "answer": read(results / "optimal.json")["name"]}

    @staticmethod
    def answer(results):
        config = read(results / "ds_config_optimal.json")
        config.pop("autotuning", None)
        return config

    # The answers, run for long

    def answers(self):
        """A system's answer is a member, and a member has the same name in all of them."""
        found = {}
        for run in self.results["runs"].values():
            found.setdefault(run["answer"], run["config"])
        return found

    def run_answers(self):
        given = self.given
        answers = list(self.answers().items())
        for turn in range(given.passes):
            for name, config in answers[::-1 if turn % 2 else 1]:
                done = self.results["launches"].get(name, [])
                if len(done) > turn:
                    continue
                print(f"answer {name}, {given.steps} steps, pass {turn + 1}", file=sys.stderr)
                _, times, losses = self.launch(config, given.steps)
                counted = times[WARM_STEPS:]
                self.keep("launches", name, done + [{
                    "samples_per_s": config["train_batch_size"] * len(counted) / sum(counted),
                    "median_step_s": statistics.median(counted), "last_loss": losses[-1]}])

    # Tables

    def print_tables(self):
        runs = self.results["runs"]
        print(f"Space: {self.members} members, stages {self.given.stages} x micro-batches {self.given.micro_batches}, "
              f"global batch {self.given.ranks * max(self.given.micro_batches)}, {self.given.ranks} ranks.\n")
        print("| round | system | members | experiments run | wall time, s | times faster | answer "
              f"| samples/s over {self.given.steps} steps |\n|---|---|---|---|---|---|---|---|")
        ratios, gains = {}, {}
        for key, run in sorted(runs.items(), key=lambda item: (int(item[0].split(".")[0]),
                                                               SYSTEMS.index(item[0].split(".")[1]))):
            turn, system = key.split(".")
            other = runs.get(f"{turn}.autotuner")
            ratio = other["took_s"] / run["took_s"] if other else None
            if other and system != "autotuner":
                ratios.setdefault(system, []).append(ratio)
                if self.values(run) and self.values(other):
                    gains.setdefault(system, []).append(statistics.fmean(self.values(run)) /
                                                        statistics.fmean(self.values(other)))
            print(f"| {turn} | {system} | {len(run['members'])} | {self.experiments(system, run)} | "
                  f"{run['took_s']:.1f} | {f'{ratio:.2f}' if ratio else ''} | {run['answer']} | {self.speed(run)} |")
            if run["members"] != next(iter(runs.values()))["members"]:
                print(f"\n{key}: its members are not those of {next(iter(runs))}")
        print()
        for system, values in ratios.items():
            answers = ", ".join(f"{gain:.3f}" for gain in gains.get(system, [])) or "not run"
            print(f"{system}: {statistics.median(values):.2f} times as fast as the autotuner (median of {len(values)}; "
                  f"{min(values):.2f} to {max(values):.2f}); its answer's speed beside the autotuner's: {answers}")

    @staticmethod
    def experiments(system, run):
        failed = f", {len(run['failed'])} failed" if run["failed"] else ""
        if system == "autotuner":
            return f"{len(run['members'])} + 1 profile = {run['engines']} launches{failed}"
        own = f"{run['own']} by our step, then " if run["own"] else ""
        raced = f" ({run['raced_out']} raced out)" if run["raced_out"] else ""
        return f"{own}{run['tried']}{raced} + {run['engines'] - run['tried']} again{failed}"

    def values(self, run):
        return [one["samples_per_s"] for one in self.results["launches"].get(run["answer"], [])]

    def speed(self, run):
        values = self.values(run)
        if not values:
            return ""
        spread = 50 * (max(values) - min(values)) / statistics.fmean(values)
        return f"{statistics.fmean(values):.2f} ± {spread:.1f} % ({len(values)} launches)"


def main():
    given = parsed()
    bench = Bench(given)
    if not given.only_print:
        if len(bench.results["runs"]) < len(given.systems) * given.rounds:
            bench.warm()
        for turn in range(1, given.rounds + 1):
            # Odd rounds begin with the autotuner, even ones end with it.
            for system in given.systems[::1 if turn % 2 else -1]:
                if f"{turn}.{system}" not in bench.results["runs"]:
                    bench.run(system, turn)
        bench.run_answers()
    bench.print_tables()


if __name__ == "__main__":
    main()
