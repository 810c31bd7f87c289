#!/usr/bin/env python3
"""What the values of the policy are worth that nothing else justifies: each one halved and doubled.

    policy_bench.py FOLDER ENVIRONMENT.json [--seeds 8] [--program build/release/bench/truth_bench] [--all]

ENVIRONMENT.json is what a job wrote; its policy names the values. Those are taken whose reason begins with "by
hand", or all. Each is tried on spaces whose truth is known, with the same seeds: truth_bench has them. Other seeds,
five times, tell how much the figures move by themselves. A value that changes no search of the first seed is named
below the Markdown table. FOLDER keeps what has ended: the same command goes on from there.
"""

import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess

ROW = re.compile(r"^\| all with information \|(.*)\|$", re.M)
REGRET, EXPERIMENTS = 3, 5  # places in the row, without its name: mean regret, mean share of members that ran


def run(given, name, arguments, seeds=None):
    seeds = seeds or given.seeds
    path = given.folder / f"{name}-{seeds}.md"
    if not path.exists():
        found = subprocess.run([given.program, "--race", "--seeds", str(seeds), *arguments],
                               capture_output=True, text=True)
        # A value that a search cannot bear is a finding.
        text = found.stdout if found.returncode == 0 else f"failed with {found.returncode}: {found.stderr[-500:]}"
        path.with_suffix(".new").write_text(text)
        os.replace(path.with_suffix(".new"), path)
    text = path.read_text()
    match = ROW.search(text)
    if not match:
        return None, text
    cells = [cell.strip() for cell in match[1].split("|")]
    # What the tuner takes of real time, the last cell, differs from run to run.
    counted = re.sub(r"\| [\d.]+ \|$", "|", text, flags=re.M)
    return (float(cells[REGRET]), float(cells[EXPERIMENTS])), counted


def cell(figures):
    return "fails" if figures is None else f"{figures[0]:.2f}, {figures[1]:.1f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("environment", type=pathlib.Path)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--program", default="build/release/bench/truth_bench")
    parser.add_argument("--all", action="store_true")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)

    text_of_first_seed = run(given, "as-is", [], 1)[1]
    as_is = run(given, "as-is", [])[0]
    others = [run(given, f"seeds-{first}", ["--first-seed", str(first)])[0] for first in range(2000, 7000, 1000)]
    print(f"| value | as is | mean regret, members run, %: halved | as is | doubled |\n"
          f"| --- | --- | --- | --- | --- |")
    unread = []
    for group, values in json.loads(given.environment.read_text())["policy"].items():
        for name, row in values.items():
            if name == "source" or not isinstance(row["value"], (int, float)):
                continue
            if not given.all and not row["reason"].startswith("by hand"):
                continue
            full = f"{group}.{name}"
            changed = [("--policy", f"{full}={factor}") for factor in (0.5, 2)]
            if all(run(given, change[1], change, 1)[1] == text_of_first_seed for change in changed):
                unread.append(full)
                continue
            halved, doubled = (run(given, change[1], change)[0] for change in changed)
            print(f"| `{full}` | {row['value']:g} {row['unit']} | {cell(halved)} | {cell(as_is)} | "
                  f"{cell(doubled)} |", flush=True)
    for index, what in enumerate(("mean regret", "members run")):
        figures = [other[index] for other in others]
        print(f"\nFive other sets of seeds, {what}, %: {min(figures):.2f} to {max(figures):.2f}, "
              f"standard deviation {statistics.stdev(figures):.2f}.")
    if unread:
        print("\nNot a search of the first seed changes with " + ", ".join(f"`{name}`" for name in unread) + ".")


if __name__ == "__main__":
    main()
