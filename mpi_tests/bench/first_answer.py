#!/usr/bin/env python3
"""How soon jobs have an answer: each space alone on two ranks, stopped by a time limit.

    first_answer.py PROGRAM [--time-limit 85] [--model config.json] SPACE.json ...

A SPACE is a space.json or a plain DeepSpeed config; one without a model takes --model. A line for each: the
seconds from the plan to the first answer on disk, the experiments that ran, the exit code. The last line
has the median and the worst. mpirun must be able to start (as root: OMPI_ALLOW_RUN_AS_ROOT).
"""
import argparse
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time


def watch(path, seen):
    """The moment at which the file is there first."""
    while not path.exists():
        if "ended" in seen:
            return
        time.sleep(0.02)
    seen["answer"] = time.monotonic()


def run(options, space, folder):
    results = folder / "results"
    command = [*options.launch.split(), os.path.abspath(options.program), str(space), "--time-limit",
               str(options.time_limit), "--results-dir", str(results), "--exps-dir", str(folder / "exps")]
    if options.model and '"model"' not in space.read_text(encoding="utf-8-sig"):
        command += ["--model", os.path.abspath(options.model)]
    seen = {}
    watcher = threading.Thread(target=watch, args=(results / "ds_config_optimal.json", seen), daemon=True)
    watcher.start()
    said = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=space.parent) as job:
        for line in job.stdout:
            said.append(line)
            if re.search(r"\d+ experiments? planned", line):
                seen["planned"] = time.monotonic()
    seen["ended"] = time.monotonic()
    watcher.join()
    if options.logs:
        pathlib.Path(options.logs, f"{space.parent.name}-{space.stem}.log").write_text("".join(said))
    wait_s = seen["answer"] - seen["planned"] if {"answer", "planned"} <= seen.keys() else float("inf")
    experiments = sum(bool(re.search(r"\[\d+/\d+\]", line)) for line in said)
    return wait_s, experiments, job.returncode


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("spaces", nargs="+", type=pathlib.Path)
    parser.add_argument("--time-limit", type=float, default=85)
    parser.add_argument("--model", help="config.json of a model, for spaces without one")
    parser.add_argument("--launch", default="mpirun -np 2")
    parser.add_argument("--logs", help="a folder, which is there, for what the jobs said")
    options = parser.parse_args()
    waits = []
    for space in options.spaces:
        folder = pathlib.Path(tempfile.mkdtemp(prefix="first-answer-"))
        wait_s, experiments, code = run(options, space.resolve(), folder)
        shutil.rmtree(folder, ignore_errors=True)
        waits.append(wait_s)
        print(f"{wait_s:7.1f} s  {experiments:4} experiments  exit {code:3}  {space.name}", flush=True)
    print(f"first answer: median {statistics.median(waits):.1f} s, worst {max(waits):.1f} s")
    return 0 if max(waits) < float("inf") else 1


if __name__ == "__main__":
    sys.exit(main())
