#!/usr/bin/env python3
"""How our step, the target's time and DeepSpeed's second run order what DeepSpeed ran on the same card.

    correlation.py FOLDER [PREFIX]

FOLDER has results folders: `job` of our own step, `engine1` and `engine2` of DeepSpeed's engine, of one space;
PREFIX, where given, stands before these names.
A row: members in common, Spearman's rank correlation with engine1, and by how much DeepSpeed's throughput of
the best member by that row is below DeepSpeed's best. Then each member's figures.
"""
import csv
import pathlib
import statistics
import sys


def rows_of(folder):
    path = folder / "results.csv"
    if not path.is_file():
        return {}
    with path.open(encoding="utf-8", newline="") as file:
        return {row["name"]: row for row in csv.DictReader(file)}


def figures(rows, key):
    return {name: float(row[key]) for name, row in rows.items() if row.get("status") == "ok" and row.get(key)}


def ranks(values):
    order = sorted(values)
    return [order.index(value) + (order.count(value) - 1) / 2 for value in values]


def compare(title, figures_of, truth):
    names = [name for name in truth if name in figures_of]
    if len(names) < 3:
        print(f"{title:32} {len(names)} members in common: too few")
        return None
    mine, theirs = [figures_of[name] for name in names], [truth[name] for name in names]
    pick = max(range(len(names)), key=mine.__getitem__)
    correlation = statistics.correlation(ranks(mine), ranks(theirs))
    print(f"{title:32} {len(names):3} members  rank correlation {correlation:6.3f}  its best is "
          f"{100 * (1 - theirs[pick] / max(theirs)):5.2f} % below DeepSpeed's best ({names[pick]})")
    return correlation


def main():
    folder = pathlib.Path(sys.argv[1])
    prefix = sys.argv[2] if len(sys.argv) > 2 else ""
    job, one, two = (rows_of(folder / (prefix + name)) for name in ("job", "engine1", "engine2"))
    truth = figures(one, "throughput")
    columns = [("DeepSpeed's second run", figures(two, "throughput")), ("our step", figures(job, "throughput")),
               ("the target's time", figures(job, "value")), ("predicted", figures(job, "predicted_throughput"))]
    found = [compare(title, values, truth) for title, values in columns]
    print("\nmember, samples/s: DeepSpeed, " + ", ".join(title for title, _ in columns))
    for name in sorted(truth, key=truth.get, reverse=True):
        cells = [f"{values[name]:9.2f}" if name in values else "        -" for _, values in columns]
        print(f"{name:40} {truth[name]:9.2f} {' '.join(cells)}")
    told = ["-" if one is None else f"{one:.3f}" for one in found]
    print(f"result: DeepSpeed again {told[0]}, our step {told[1]}, the target's time {told[2]}, predicted {told[3]}")


if __name__ == "__main__":
    main()
