#!/usr/bin/env python3
"""Runs every member of a space and makes a table for search_bench of it, in pieces of some seconds.

A piece beside which other processes took more than a small share of a core is thrown away and run
again, so that the table holds what the machine does when nobody else uses it. What is done stays:
the same command goes on where it was stopped. From the checkout, after building everything:

    mpi_tests/bench/record_space.py mpi_tests/bench/spaces/gpt2-2ranks.json 2 FOLDER [--passes 2] [--limit SECONDS]

All members run once in each pass, so that what differs from one moment to another is averaged. FOLDER keeps the
results between calls. Ends with 0 when the table is written, with 75 before.

With --disturbed a load of our own takes one core, now and then: for a part of a run (short), or for several runs (long).
Passes beside the load take turns with as many without it. A table in tables/disturbed keeps what was measured beside
it: no piece, no run and no step is thrown away. The passes without it say what a member is worth.
"""

import argparse
import contextlib
import ctypes
import json
import os
import pathlib
import resource
import shutil
import subprocess
import sys
import time

from disturbance import disturbance

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]
TABLES = CHECKOUT / "mpi_tests" / "bench" / "tables"
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
STOPPED_EARLY = 75
# Seconds that a core is busy, and free: short loads let runs of 0.4 s differ by some 10 %, long ones more.
LOADS = {"short": ((0.01, 0.05), (0.05, 0.25)), "long": ((2, 6), (2, 6))}


def adopt_orphans():
    """A job that ends by itself may leave ranks behind; their time counts as ours (prctl(2))."""
    set_child_subreaper = 36
    ctypes.CDLL(None).prctl(set_child_subreaper, 1, 0, 0, 0)


def busy_s():
    """Seconds that all cores together were busy or taken away, since the start of the machine."""
    user, nice, system, _, _, irq, softirq, steal = map(
        int, pathlib.Path("/proc/stat").read_text().split("\n")[0].split()[1:9])
    return (user + nice + system + irq + softirq + steal) * TICK_S


def own_s(waiting):
    """`waiting`: 0 waits for all that is left of a job; os.WNOHANG does not, where a load of our own goes on."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, waiting)[0]:
            pass
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def measured(command, output, waiting):
    """Runs it; its exit status, and how many cores others used meanwhile."""
    busy, own, began = busy_s(), own_s(waiting), time.monotonic()
    with open(output, "w") as file:
        status = subprocess.run(command, stdout=file, stderr=subprocess.STDOUT, check=False).returncode
    elapsed = time.monotonic() - began
    return status, max(0.0, busy_s() - busy - (own_s(waiting) - own)) / elapsed


def is_finished(results):
    status = results / "exit_status.json"
    return status.exists() and json.loads(status.read_text())["exit_code"] == 0


def run_pass(arguments, results, is_disturbed, profile, log, end):
    """Runs pieces until all is done; ends the program where the time is up."""
    command = ["mpirun", "-np", str(arguments.ranks), str(arguments.build / "dstune-mpi"),
               "--tuner", "gridsearch", "--no-progress", "--quiet", "--time-limit", f"{arguments.piece:g}s",
               "--reserve", "1s", "--results-dir", str(results), "--exps-dir", str(results) + ".exps",
               str(arguments.space)]
    while time.monotonic() + arguments.piece < end:
        before = results.with_suffix(".before")
        shutil.rmtree(before, ignore_errors=True)
        if results.exists():
            shutil.copytree(results, before)
        is_first = not profile.exists()
        measuring = ["--profile-out", str(profile)] if is_first else []
        waiting = os.WNOHANG if is_disturbed else 0
        status, others = measured(command + measuring, results.with_suffix(".txt"), waiting)
        is_kept = (is_disturbed or others <= arguments.others) and status in (0, STOPPED_EARLY)
        piece = {"at": time.strftime("%Y-%m-%dT%H:%MZ", time.gmtime()), "status": status,
                 "others": round(others, 3), "kept": is_kept}
        with open(log, "a") as file:
            file.write(json.dumps(piece) + "\n")
        print(results, piece, flush=True)
        if is_kept and status == 0:
            return
        if not is_kept:
            shutil.rmtree(results, ignore_errors=True)
            if is_first:
                profile.unlink(missing_ok=True)
            if before.exists():
                before.rename(results)
        if status not in (0, STOPPED_EARLY):
            sys.exit(results.with_suffix(".txt").read_text())
    sys.exit(STOPPED_EARLY)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("space", type=pathlib.Path)
    parser.add_argument("ranks", type=int)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--limit", type=float, default=1e9, help="seconds, after which no piece begins")
    parser.add_argument("--passes", type=int, default=1, help="how often every member runs")
    parser.add_argument("--piece", type=float, default=15, help="seconds of a piece")
    parser.add_argument("--disturbed", choices=LOADS, help="beside a load of our own, in turns with passes without it")
    parser.add_argument("--others", type=float, default=0.05, help="cores that others may use")
    parser.add_argument("--note", default="", help="what else is to be known of how it was made")
    parser.add_argument("--build", type=pathlib.Path, default=CHECKOUT / "build" / "release")
    arguments = parser.parse_args()
    name = arguments.space.stem
    if arguments.disturbed:
        name = f"disturbed/{name}-{arguments.disturbed}"
    folder = arguments.folder / name
    folder.mkdir(parents=True, exist_ok=True)
    profile, log = folder / "profile.json", folder / "pieces.jsonl"
    passes = [folder / f"pass{number}" for number in range(1, arguments.passes + 1)]
    adopt_orphans()
    end = time.monotonic() + arguments.limit
    quiet = []
    for number, results in enumerate(passes):
        if not is_finished(results):
            with disturbance(number, *LOADS[arguments.disturbed]) if arguments.disturbed else contextlib.nullcontext():
                run_pass(arguments, results, bool(arguments.disturbed), profile, log, end)
        if arguments.disturbed:
            quiet.append(results.with_name(f"{results.name}.quiet"))
            if not is_finished(quiet[-1]):
                run_pass(arguments, quiet[-1], False, profile, log, end)
    kept = [piece for piece in map(json.loads, log.read_text().splitlines()) if piece["kept"]]
    words = (f"mpi_tests/bench/record_space.py, {arguments.ranks} ranks of OMP_NUM_THREADS="
             f"{os.environ.get('OMP_NUM_THREADS', 'not set')} on {os.cpu_count()} cores, {kept[0]['at']} to "
             f"{kept[-1]['at']}, in {len(kept)} pieces beside which others used at most "
             f"{max(piece['others'] for piece in kept)} cores" + (f"; {arguments.note}" if arguments.note else ""))
    subprocess.run([str(arguments.build / "bench" / "search_record"), "--quiet", str(len(quiet)),
                    str(TABLES / f"{name}.json"), str(arguments.space), str(profile), words,
                    *map(str, passes + quiet)], check=True)


if __name__ == "__main__":
    main()
