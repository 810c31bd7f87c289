#!/usr/bin/env python3
"""A table for target_figures, of what our step and DeepSpeed's engine measured on one card.

    fidelity_table.py FOLDER PREFIX CONFIG TABLE

FOLDER has the results folders PREFIXjob and PREFIXengine1 (and PREFIXengine2), CONFIG is the model's
config.json. TABLE gets the members that all of them measured.
"""
import csv
import json
import pathlib
import re
import sys


def rows_of(folder):
    with (folder / "results.csv").open(encoding="utf-8", newline="") as file:
        return {row["name"]: row for row in csv.DictReader(file) if row["status"] == "ok"}


def read(path):
    return json.loads(path.read_text(encoding="utf-8"))


def main():
    folder, prefix, config, table = pathlib.Path(sys.argv[1]), *sys.argv[2:]
    job = folder / (prefix + "job")
    engines = [folder / (prefix + name) for name in ("engine1", "engine2")]
    engines = [engine for engine in engines if (engine / "results.csv").is_file()]
    ours, theirs = rows_of(job), [rows_of(engine) for engine in engines]
    environment = read(engines[0] / "environment.json")
    packages = environment["python"]["versions"]
    differ = re.search(r"differ by ([0-9.]+) %", read(job / "report.json")["machine"]["conduct"])
    experiments = []
    for name in sorted(ours):
        if not all(name in rows for rows in theirs):
            continue
        experiments.append({
            "name": name, "ds_config": read(job / name / "ds_config.json"), "recompute": ours[name]["recompute"],
            "sequence_length": read(job / "optimal.json")["sequence_length"],
            "deepspeed": [round(float(rows[name]["throughput"]), 3) for rows in theirs],
            "measured": round(float(ours[name]["throughput"]), 3), "predicted": None})
    result = {"deepspeed": packages["deepspeed"], "torch": packages["torch"], "transformers": packages["transformers"],
              "ranks": 1, "model": read(pathlib.Path(config)), "own_run_error": round(float(differ[1]) / 100, 5),
              "device": re.sub(r"^cuda \((.*)\)$", r"\1", environment["ranks"][0]["device"]),
              "experiments": experiments}
    pathlib.Path(table).write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
