#!/usr/bin/env python3
"""Runs jobs of different kinds and keeps what an estimate of their end is tested on (recorded_jobs/NAME.json).

    mpi_tests/bench/record_jobs.py FOLDER [--program build/release/dstune-mpi] [--only NAME ...]

mpirun's settings come from the environment. FOLDER keeps the results of the jobs between calls: a job that has ended
is not run again, and its recording is made anew from its journal. A recording has the space, the predictions from
before the search, and every run with its times. Of the timed steps of a run at most some are kept. Every third job
is held out: it judges an estimate that was made with the others.
"""

import argparse
import datetime
import json
import os
import pathlib
import shutil
import subprocess
import time

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]
BENCH = CHECKOUT / "mpi_tests" / "bench"
SPACES = BENCH / "spaces"
RECORDINGS = BENCH / "recorded_jobs"
EXAMPLES = CHECKOUT / "scripts" / "spaces"
KEPT_STEPS = 6
TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def with_budget(seconds):
    return {"trial_budget_s": seconds}


def replay(name):
    return {"workload": {"type": "replay", "table": str(BENCH / "tables" / f"{name}.json"), "time_scale": 1}}


# Name, space, members of "dstune", members of "autotuning", ranks, options.
GRID = {"tuner_type": "gridsearch"}
JOBS = [
    ("race-quickstart", EXAMPLES / "quickstart.json", with_budget(5), {}, 2, []),
    ("grid-quickstart", EXAMPLES / "quickstart.json", with_budget(5), GRID, 2, []),
    ("race-gpt2", SPACES / "gpt2-2ranks.json", with_budget(5), {}, 2, []),
    ("race-replay-gpt2", SPACES / "gpt2-2ranks.json", {**with_budget(5), **replay("gpt2-2ranks")}, {}, 2, []),
    ("grid-replay-llama", SPACES / "llama-1rank.json", {**with_budget(2), **replay("llama-1rank")}, GRID, 2, []),
    ("race-replay-sizes", SPACES / "gpt2-sizes.json", {**with_budget(5), **replay("gpt2-sizes")}, {}, 3, []),
    ("grid-synthetic-3ranks", SPACES / "gpt2-sizes.json",
     {**with_budget(1), "workload": {"type": "synthetic", "step_time_s": 0.03}}, GRID, 3, []),
    ("random-llama", EXAMPLES / "llama.json", with_budget(2), {}, 2, []),
    ("grid-gpt2", SPACES / "gpt2-2ranks.json", with_budget(0.5), GRID, 2, []),
    ("race-sizes", SPACES / "gpt2-sizes.json", with_budget(2), {}, 2, []),
    ("race-replay-bert-4ranks", SPACES / "bert-4ranks.json", {**with_budget(5), **replay("bert-4ranks")}, {}, 4, []),
    ("grid-replay-bert-4ranks", SPACES / "bert-4ranks.json", {**with_budget(2), **replay("bert-4ranks")}, GRID, 4, []),
    ("race-llama-1rank", SPACES / "llama-1rank.json", with_budget(2), {}, 2, []),
    ("race-offload-limit", SPACES / "llama-offload.json", with_budget(2), {}, 2, ["--time-limit", "30s"]),
    ("race-replay-offload", SPACES / "llama-offload.json", {**with_budget(5), **replay("llama-offload")}, {}, 2, []),
    ("model-based-replay", SPACES / "llama-buckets.json", {**with_budget(5), **replay("llama-buckets")},
     {"tuner_type": "model_based"}, 2, []),
    ("race-bert-4ranks", SPACES / "bert-4ranks.json", with_budget(2), {}, 4, []),
    ("race-llama", EXAMPLES / "llama.json", with_budget(2), {"tuner_type": "race", "tuner_num_trials": 100}, 2, []),
    ("race-synthetic-sizes", EXAMPLES / "llama.json",
     {**with_budget(4), "workload": {"type": "synthetic", "step_time_s": 0.05}},
     {"tuner_type": "race", "tuner_num_trials": 100}, 2, []),
    ("grid-replay-stopping", SPACES / "bert-2ranks.json", {**with_budget(5), **replay("bert-2ranks")},
     {**GRID, "tuner_early_stopping": 15}, 2, []),
    ("race-buckets", SPACES / "llama-buckets.json", {**with_budget(2), "target": {}}, {}, 2, []),
    ("race-replay-bert", SPACES / "bert-2ranks.json", {**with_budget(15), **replay("bert-2ranks")}, {}, 2, []),
    ("race-bert", SPACES / "bert-2ranks.json", {**with_budget(2), "target": {}}, {}, 2, []),
]


def busy_s():
    """Seconds that all cores together were busy or taken away, since the start of the machine."""
    user, nice, system, _, _, irq, softirq, steal = map(
        int, pathlib.Path("/proc/stat").read_text().split("\n")[0].split()[1:9])
    return (user + nice + system + irq + softirq + steal) * TICK_S


def space_of(path, dstune, autotuning):
    """The document, with files that lie beside it by what they hold."""
    lines = [line for line in path.read_text().splitlines() if not line.lstrip().startswith("//")]
    document = json.loads("\n".join(lines))
    document["dstune"].pop("training_command", None)
    config = document["dstune"]["model"].get("hf_config")
    document["dstune"].update(dstune)
    if document["dstune"].get("target") == {}:
        del document["dstune"]["target"]
    document["autotuning"].update(autotuning)
    return document, json.loads((path.parent / config).read_text()) if config else None


def run(arguments, name, path, dstune, autotuning, ranks, options):
    folder = arguments.folder / name
    folder.mkdir(parents=True, exist_ok=True)
    document, model = space_of(path, dstune, autotuning)
    if model:
        document["dstune"]["model"] = {"hf_config": "config.json"}
        (folder / "config.json").write_text(json.dumps(model))
    (folder / "space.json").write_text(json.dumps(document))
    if (folder / "load.json").exists():
        return
    if (folder / "results").exists():
        shutil.rmtree(folder / "results")
    if "workload" not in document["dstune"]:
        options = [*options, "--profile-out", str(folder / "profile.json")]
    busy, own, began = busy_s(), os.times(), time.monotonic()
    status = subprocess.run(["mpirun", "-np", str(ranks), str(arguments.program), "--quiet", "--no-progress",
                             "--results-dir", str(folder / "results"), "--exps-dir", str(folder / "exps"),
                             *options, str(folder / "space.json")],
                            stdout=subprocess.DEVNULL, check=False).returncode
    took = time.monotonic() - began
    now = os.times()
    own_s = now.children_user + now.children_system - own.children_user - own.children_system
    load = {"exit_status": status, "others": round(max(0.0, busy_s() - busy - own_s) / took, 2)}
    print(f"{name}: {took:.0f} s, status {status}, others took {load['others']} of {os.cpu_count()} cores", flush=True)
    (folder / "load.json").write_text(json.dumps(load))


def seconds(text):
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def kept_steps(measurement):
    """Some of the timed steps, evenly from all: microseconds."""
    timed = measurement["step_times_s"][measurement["warmup_steps"]:]
    count = min(KEPT_STEPS, len(timed))
    return [int(float(f"{1e6 * timed[i * len(timed) // count]:.4g}")) for i in range(count)]


def record(arguments, number, name, ranks, options):
    folder = arguments.folder / name
    recordings = RECORDINGS / "held_out" if number % 3 == 2 else RECORDINGS
    plan = [str(arguments.program), "plan", "--all", "--format", "json"]
    if (folder / "profile.json").exists():
        plan += ["--profile", str(folder / "profile.json")]
    members = json.loads(subprocess.run([*plan, str(folder / "space.json")], check=True, capture_output=True,
                                        text=True).stdout)["experiments"]
    journal = [json.loads(line)["event"] for line in (folder / "results/journal.jsonl").read_text().splitlines()]
    began = next(seconds(event["time"]) for event in journal if event["kind"] == "job_started")
    open_runs, runs = {}, []
    planned = [member for member in members if member["status"] == "planned"]
    number_of = {member["name"]: number for number, member in enumerate(planned)}
    for event in journal:
        kind = event["kind"]
        if kind in ("started", "repeat_started"):
            open_runs[event["key"], event.get("purpose"), event.get("round")] = event
        if kind not in ("finished", "repeated"):
            continue
        started = open_runs.pop((event["key"], event.get("purpose"), event.get("round")))
        measurement = event["measurement"]
        times = (started["time"], event["started_at"], event["finished_at"])
        runs.append([number_of[event["name"]], {"spread": 1, "control": 1, "final": 2}.get(event.get("purpose"), 0),
                     *(round(seconds(text) - began, 2) for text in times), len(started["world_ranks"]), event["alone"],
                     measurement["status"], measurement["peak_memory_bytes"]["total"], kept_steps(measurement)])
    predicted = [[m["name"], *(m["predicted"][key] and float(f"{m['predicted'][key]:.4g}")
                               for key in ("throughput", "target_throughput"))] for m in planned]
    document = json.loads((folder / "space.json").read_text())
    recording = {}
    if "hf_config" in document["dstune"]["model"]:
        recording["config"] = json.loads((folder / "config.json").read_text())
    if "table" in document["dstune"].get("workload", {}):
        document["dstune"]["workload"]["table"] = os.path.relpath(document["dstune"]["workload"]["table"], recordings)
    # A tenth of the limit is for a clean end; what runs then is stopped, and has no end in the journal.
    limit = options[options.index("--time-limit") + 1] if "--time-limit" in options else None
    end = max(run[4] for run in runs)
    if json.loads((folder / "load.json").read_text())["exit_status"] == 75:
        end = round(next(seconds(event["time"]) for event in journal if event["kind"] == "job_finished") - began, 2)
    recording |= {"ranks": ranks, "time_limit_s": 0.9 * float(limit[:-1]) if limit else None,
                 "others": json.loads((folder / "load.json").read_text())["others"],
                 "end_s": end, "space": document}
    text = json.dumps(recording, separators=(",", ":"))[:-1]
    text += ',"predicted":[\n' + ",\n".join(json.dumps(row, separators=(",", ":")) for row in predicted)
    text += '],"runs":[\n' + ",\n".join(json.dumps(row, separators=(",", ":")) for row in runs) + "]}\n"
    recordings.mkdir(parents=True, exist_ok=True)
    (recordings / f"{name}.json").write_text(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--program", type=pathlib.Path, default=CHECKOUT / "build" / "release" / "dstune-mpi")
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--trainings", action="store_true", help="leave out what trains nothing")
    parser.add_argument("--others", action="store_true", help="leave out what trains")
    arguments = parser.parse_args()
    for number, (name, path, dstune, autotuning, ranks, options) in enumerate(JOBS):
        trains = "workload" not in dstune
        if (arguments.only and name not in arguments.only) or (arguments.others if trains else arguments.trainings):
            continue
        run(arguments, name, path, dstune, autotuning, ranks, options)
        if (arguments.folder / name / "results" / "journal.jsonl").exists():
            record(arguments, number, name, ranks, options)


if __name__ == "__main__":
    main()
