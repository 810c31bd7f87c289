#!/usr/bin/env python3
"""Shares of a job's time: timed steps, warm-up steps, building, the rest of a run, waiting for rank 0; and finals.

    job_shares.py read RESULTS_DIR...
    job_shares.py run FOLDER [--program build/release/dstune-mpi --program OTHER] [--times 3] [--jobs quickstart-2,llama-2]

`read` takes the times of the last job in each folder's journal. `run` runs the jobs with each program in turns, and
prints medians (and the least and the most). Its jobs are quickstart-N, llama-N, and verify-N: the quickstart's space
with --verify, by the Python that DSTUNE_ENGINE_PYTHON names. N is the number of ranks. FOLDER keeps what has ended:
the same command goes on from there.

The time from the first GO to the job's end is divided. An instant belongs to the first of these that some group is
at: a timed step, a warm-up step, building (ASSIGN to GO, and making weights and states), the rest between GO and
OUTCOME. Else all ranks wait for rank 0. A journal has no moments of single steps, only how long each took. So the
parts of a run are laid end to end in this order: building, warm-up, timed steps, the rest. Runs of the same ranks at
the same time take turns: they count as one run, and what one of them builds between the steps of others is rest.
`ranks' time` is timed and warm-up steps by ranks, not by instants: a rank without a run counts as waiting.
"""

import argparse
import collections
import datetime
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

from beside_autotuner import read_commented

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]
PARTS = ("timed", "warm-up", "building", "rest")
Run = collections.namedtuple("Run", "is_final assigned go end initialize warm timed steps warm_steps ranks")


def moment(text):
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def last_job(path):
    """The events of the last job that the journal has."""
    events = [json.loads(line)["event"] for line in path.read_text(encoding="utf-8").splitlines()]
    first = max(number for number, event in enumerate(events) if event["kind"] == "job_started")
    return events[first:]


def runs_of(events):
    runs, assigned = [], {}
    for event in events:
        if event["kind"] in ("started", "repeat_started"):
            # With a repeat's purpose and round where it is one.
            assigned[event["key"], event.get("purpose"), event.get("round")] = moment(event["time"])
        if event["kind"] not in ("finished", "repeated"):
            continue
        measured = event["measurement"]
        go, end = moment(event["started_at"]), moment(event["finished_at"])
        ranks = tuple(measured.get("group", {}).get("world_ranks", []))
        if end <= go or not ranks:  # known before: nothing ran
            continue
        steps, warm = measured.get("step_times_s", []), measured.get("warmup_steps", 0)
        at = assigned.get((event["key"], event.get("purpose"), event.get("round")), go)
        runs.append(Run(event.get("purpose") == "final", min(at, go), go, end,
                        measured.get("overhead_s", {}).get("initialize", 0), sum(steps[:warm]), sum(steps[warm:]),
                        len(steps) - warm, warm, ranks))
    return runs


def joined(spans):
    """Spans that touch become one."""
    result = []
    for begin, end in sorted(spans):
        if result and begin <= result[-1][1]:
            result[-1][1] = max(result[-1][1], end)
        else:
            result.append([begin, end])
    return result


def length(spans):
    return sum(end - begin for begin, end in joined(spans))


def without(spans, covered):
    """The spans less what is covered. Both are joined."""
    result = []
    for begin, end in spans:
        for low, high in covered:
            if low < end and high > begin:
                if low > begin:
                    result.append([begin, low])
                begin = max(begin, high)
        if begin < end:
            result.append([begin, end])
    return result


def within(spans, low, high):
    return [[max(begin, low), min(end, high)] for begin, end in spans if min(end, high) > max(begin, low)]


def blocks_of(runs):
    """Runs that share a rank and a moment: [assigned, end, the runs]."""
    blocks = []
    for run in sorted(runs, key=lambda run: run.assigned):
        for block in blocks:
            # The next one is assigned where an outcome is known: a shared instant is no overlap.
            if run.assigned < block[1] - 1e-3 and set(run.ranks) & {rank for other in block[2] for rank in other.ranks}:
                block[1] = max(block[1], run.end)
                block[2].append(run)
                break
        else:
            blocks.append([run.assigned, run.end, [run]])
    return blocks


def laid_end_to_end(block):
    """{part: [begin, end]} of a block."""
    at, end, runs = block[0], block[1], block[2]
    # While a run waits for its GO another one may be at its steps.
    waiting = joined([[run.assigned, run.go] for run in runs])
    building = length(without(waiting, joined([[run.go, run.end] for run in runs])))
    building += sum(run.initialize for run in runs)
    lengths = {"building": building, "warm-up": sum(run.warm for run in runs), "timed": sum(run.timed for run in runs)}
    spans = {}
    for part, taken in lengths.items():
        spans[part] = [at, min(at + taken, end)]
        at = spans[part][1]
    spans["rest"] = [at, end]
    return spans


def divide(runs, low, high):
    """Seconds of each part between two moments, and of those at which no run is."""
    spans = collections.defaultdict(list)
    for block in blocks_of(runs):
        for part, span in laid_end_to_end(block).items():
            spans[part].append(span)
    seconds, covered = {}, []
    for part in PARTS:
        mine = within(joined(spans[part]), low, high)
        seconds[part] = length(without(mine, covered))
        covered = joined(covered + mine)
    seconds["rank 0"] = high - low - length(covered)
    return seconds


def figures_of(folder):
    """What a table's row has of a job, in seconds, shares and counts."""
    events = last_job(folder / "journal.jsonl")
    runs = runs_of(events)
    if not runs:
        sys.exit(f"{folder}: the last job ran nothing")
    began = moment(events[0]["time"])
    end = max([moment(event["time"]) for event in events if "time" in event] + [run.end for run in runs])
    first = min(run.go for run in runs)
    wall = end - first
    seconds = divide(runs, first, end)
    finals = [run for run in runs if run.is_final]
    ranks = events[0].get("num_ranks") or 1 + max(rank for run in runs for rank in run.ranks)
    stepping = sum((run.timed + run.warm) * len(run.ranks) for run in runs)
    beside = [run.end - run.assigned - run.warm - run.timed for run in runs]
    return {"job, s": end - began, "before GO, s": first - began, "from GO, s": wall,
            **{f"{part}, %": 100 * taken / wall for part, taken in seconds.items()},
            "all steps, %": 100 * (seconds["timed"] + seconds["warm-up"]) / wall,
            "ranks' time, %": 100 * stepping / (wall * ranks),
            "finals, %": 100 * length([[run.assigned, run.end] for run in finals]) / wall,
            "after the last, s": end - max(run.end for run in runs),
            "runs": len(runs), "finals": len(finals),
            "timed steps": sum(run.steps for run in runs), "warm-up steps": sum(run.warm_steps for run in runs),
            "beside a run's steps, s": statistics.median(beside)}


def print_table(rows):
    """rows: {name: the figures of each time}."""
    names = list(next(iter(rows.values()))[0])
    print("| " + " | ".join(["", *rows]) + " |\n|" + " --- |" * (1 + len(rows)))
    for name in names:
        cells = []
        for row in rows.values():
            values = [figures[name] for figures in row]
            text = f"{statistics.median(values):.4g}"
            if max(values) > min(values):
                text += f" ({min(values):.4g}–{max(values):.4g})"
            cells.append(text)
        print(f"| {name} | " + " | ".join(cells) + " |")


def write_space(job, folder):
    """The job's space, for any folder; its ranks and options."""
    name, ranks = job.rsplit("-", 1)
    path = CHECKOUT / "scripts" / "spaces" / f"{'quickstart' if name == 'verify' else name}.json"
    document, options = read_commented(path), []
    dstune = document["dstune"]
    dstune["model"]["hf_config"] = str((path.parent / dstune["model"]["hf_config"]).resolve())
    if name == "verify":
        if not os.environ.get("DSTUNE_ENGINE_PYTHON"):
            sys.exit(f"{job}: DSTUNE_ENGINE_PYTHON names no Python (scripts/setup.sh --engine)")
        # Random tokens train the model, by an optimizer that needs no build.
        dstune.pop("training_command", None)
        document["optimizer"]["params"]["torch_adam"] = True
        dstune["verify"] = {"python": os.environ["DSTUNE_ENGINE_PYTHON"]}
        options = ["--verify"]
    space = folder / "space.json"
    space.write_text(json.dumps(document, indent=1), encoding="utf-8")
    return int(ranks), space, options


def run_job(program, job, folder):
    """Runs it where it did not end yet, and says how busy the machine was. Its figures."""
    results, ended = folder / "results", folder / "took_s"
    if ended.exists():
        return {"command, s": float(ended.read_text()), **figures_of(results)}
    folder.mkdir(parents=True, exist_ok=True)
    ranks, space, options = write_space(job, folder)
    environment = {**os.environ, "OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // ranks))}
    load, began = os.getloadavg()[0], time.monotonic()
    with open(folder / "log", "w", encoding="utf-8") as log:
        subprocess.run(["mpirun", "-np", str(ranks), "--bind-to", "none", str(program), "--quiet", "--no-progress",
                        "--overwrite", "--results-dir", str(results), "--exps-dir", str(folder / "exps"), *options,
                        str(space)], check=True, stdout=log, stderr=log, env=environment)
    took_s = time.monotonic() - began
    print(f"{job}, {folder.name}: load {load:.1f} before, {os.getloadavg()[0]:.1f} after", file=sys.stderr, flush=True)
    ended.write_text(f"{took_s:.3f}\n")
    return {"command, s": took_s, **figures_of(results)}


def run(given):
    programs = [pathlib.Path(os.path.abspath(program)) for program in given.program]
    rows = collections.defaultdict(list)
    for job in given.jobs.split(","):
        for turn in range(given.times):
            for number, program in enumerate(programs):
                name = job if len(programs) == 1 else f"{job}, program {number + 1}"
                folder = pathlib.Path(os.path.abspath(given.folder), job, f"{number + 1}.{turn + 1}")
                rows[name].append(run_job(program, job, folder))
    print_table(rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    reading = commands.add_parser("read")
    reading.add_argument("results", type=pathlib.Path, nargs="+")
    running = commands.add_parser("run")
    running.add_argument("folder", type=pathlib.Path)
    running.add_argument("--program", action="append")
    running.add_argument("--times", type=int, default=3)
    running.add_argument("--jobs", default="quickstart-2,quickstart-4,llama-2,verify-2")
    given = parser.parse_args()
    if given.command == "read":
        print_table({str(folder): [figures_of(folder)] for folder in given.results})
    else:
        given.program = given.program or [CHECKOUT / "build" / "release" / "dstune-mpi"]
        run(given)


if __name__ == "__main__":
    main()
