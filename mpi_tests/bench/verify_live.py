#!/usr/bin/env python3
"""Jobs with --verify, live: what each phase takes, and what the answer is worth in launches of its own.

    verify_live.py FOLDER VENV mpi_tests/bench/spaces/fidelity-both-*.json [--ranks 2] [--steps 100] [--passes 4]

Each space is tuned once: DeepSpeed's engine decides, with random tokens. Then launches
of DeepSpeed alone run the answer and the baseline for --steps optimizer steps, --passes times, in turns. FOLDER keeps
what has ended: the same command goes on from there. On a quiet machine, from the checkout, after building; mpirun's
settings come from the environment. VENV is a virtual environment with DeepSpeed and transformers.
"""

import argparse
import datetime
import json
import os
import pathlib
import statistics
import subprocess

from beside_autotuner import read_commented
from grid_and_race import CHECKOUT, read

PHASES = ("engine's first", "engine", "finals")
MAX_FIRST = 5  # the baseline and up to four that differ most (docs/trust.md)


def moment(text):
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def span(runs):
    return min(moment(run["started_at"]) for run in runs), max(moment(run["finished_at"]) for run in runs)


class Job:
    def __init__(self, given, path):
        self.given, self.name = given, path.stem.removeprefix("fidelity-")
        self.folder = given.folder / self.name
        self.folder.mkdir(parents=True, exist_ok=True)
        self.results = self.folder / "results"
        self.document = read_commented(path)
        dstune = self.document["dstune"]
        self.model = str((path.parent / dstune["model"]["hf_config"]).resolve())
        dstune["model"] = {"hf_config": self.model}
        dstune["verify"] = {"python": str(given.venv)}
        self.document["autotuning"]["tuner_type"] = "race"

    def tune(self):
        if (self.results / "optimal.json").exists():
            return
        space = self.folder / "space.json"
        space.write_text(json.dumps(self.document, indent=1))
        with open(self.folder / "log", "w", encoding="utf-8") as log:
            subprocess.run(["mpirun", "-np", str(self.given.ranks), "--bind-to", "none", str(self.given.program),
                            "--quiet", "--no-progress", "--overwrite", "--results-dir", str(self.results),
                            "--exps-dir", str(self.folder / "exps"), str(space)],
                           check=True, stdout=log, stderr=log)

    def launch(self, names):
        """{name: samples/s of each pass}, by DeepSpeed without us."""
        chosen, table = self.folder / "chosen", self.folder / "launches.json"
        for name in names:
            (chosen / name).mkdir(parents=True, exist_ok=True)
            (chosen / name / "exp.json").write_bytes((self.results / name / "exp.json").read_bytes())
            (chosen / name / "metrics.json").write_bytes((self.results / name / "metrics.json").read_bytes())
        with open(self.folder / "launches.log", "w", encoding="utf-8") as log:
            subprocess.run([str(self.given.venv / "bin" / "python"), "-m", "torch.distributed.run", "--standalone",
                            "--nproc_per_node", str(self.given.ranks),
                            str(CHECKOUT / "scripts" / "tools" / "deepspeed_fidelity.py"), "run", self.model, str(chosen),
                            "--table", str(table), "--budget", "0", "--steps", str(self.given.steps),
                            "--passes", str(self.given.passes)],
                           check=True, stdout=log, stderr=log)
        return {row["name"]: row["deepspeed"] for row in read(table)["experiments"]}

    def report(self):
        self.tune()
        optimal = read(self.results / "optimal.json")
        engine = sorted((read(path) for path in self.results.glob("*/verified.json")),
                        key=lambda run: run["started_at"])
        finals = [run for row in read(self.results / "validation.json")["finalists"] for run in row["runs"]]
        events = [json.loads(line)["event"] for line in (self.results / "journal.jsonl").read_text().splitlines()]
        begin = moment(read(self.results / "environment.json")["started_at"])
        end = max(moment(event["time"]) for event in events if event["kind"] == "job_finished")
        first, later = engine[:MAX_FIRST], engine[MAX_FIRST:]
        spans = [span(runs) if runs else None for runs in (first, later, finals)]
        baseline = optimal["baseline"]["name"]
        launched = self.launch({optimal["name"], baseline})
        return {"name": self.name, "optimal": optimal, "baseline": baseline, "engine": engine,
                "finals": len(finals), "begin": begin, "took_s": end - begin, "spans": spans, "launched": launched}


def print_row(found):
    engine_s = [moment(run["finished_at"]) - moment(run["started_at"]) for run in found["engine"]]
    begin = found["begin"]
    phases = ", ".join(f"{phase} {span[0] - begin:.0f} to {span[1] - begin:.0f} s"
                       for phase, span in zip(PHASES, found["spans"]) if span)
    answer, optimal = found["optimal"]["name"], found["optimal"]
    speeds = {name: statistics.fmean(values) for name, values in found["launched"].items()}
    spread = {name: statistics.stdev(values) / speeds[name] * 100 for name, values in found["launched"].items()}
    gain = 100 * (speeds[answer] / speeds[found["baseline"]] - 1)
    print(f"| {found['name']} | {found['took_s']:.0f} | {phases} | {len(found['engine'])}, "
          f"{statistics.median(engine_s):.1f} s each, {found['finals']} again | {answer}, {optimal['label']} | "
          f"{optimal['value']:.1f} ({optimal['ci_low']:.1f} to {optimal['ci_high']:.1f}) | "
          f"{speeds[answer]:.1f} ± {spread[answer]:.1f} % | {found['baseline']} | "
          f"{speeds[found['baseline']]:.1f} ± {spread[found['baseline']]:.1f} % | {gain:+.1f} % |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("venv", type=pathlib.Path)
    parser.add_argument("spaces", type=pathlib.Path, nargs="+")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--passes", type=int, default=4)
    parser.add_argument("--program", type=pathlib.Path, default=CHECKOUT / "build" / "release" / "dstune-mpi")
    given = parser.parse_args()
    for path in ("folder", "venv", "program"):
        setattr(given, path, pathlib.Path(os.path.abspath(getattr(given, path))))
    print("| space | seconds | phases, since the start | engine's runs | answer | samples/s in the job "
          "| launched | baseline | launched | gain |\n|---|---|---|---|---|---|---|---|---|---|")
    for path in given.spaces:
        print_row(Job(given, path).report())


if __name__ == "__main__":
    main()
