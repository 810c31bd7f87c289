#!/usr/bin/env python3
"""Prints the constants of src/core/target_constants.json as a table for scripts/figures.py."""
import json
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Costs of the file, how to read them, the factor to that unit, and the unit.
ROWS = (
    ("optimizer_step", "an optimizer step", 1e3, "ms"),
    ("module_call", "a call of a module", 1e3, "ms"),
    ("gradient_hook", "a gradient that goes to a bucket", 1e3, "ms"),
    ("gathering_hook", "a fetch or release of a module's parameters", 1e3, "ms"),
    ("sub_group", "a sub-group of the optimizer", 1e3, "ms"),
    ("offload_copy", "a copy between device and host", 1e3, "ms"),
    ("stage_2_byte", "a byte of gradients at stage 2", 1e9, "ns"),
    ("recompute", "recompute, share of the scaled time", 1e2, "%"),
    ("all_reduce_call", "an all-reduce", 1e3, "ms"),
    ("reduce_call", "a reduce", 1e3, "ms"),
    ("reduce_scatter_call", "a reduce-scatter", 1e3, "ms"),
    ("all_gather_call", "an all-gather", 1e3, "ms"),
    ("all_gather_ahead", "an all-gather that others follow", 1e3, "ms"),
    ("all_to_all_call", "an all-to-all", 1e3, "ms"),
    ("small_call_byte", "a byte of a call of at most 512 KiB", 1e9, "ns"),
    ("communicated_byte", "a byte that a rank sends", 1e9, "ns"),
)


def main():
    sets = json.loads((ROOT / "src/core/target_constants.json").read_text(encoding="utf-8"))
    cpu, gpu = sets["cpu"], sets["gpu"]
    rows = [["scale of kernels, fp32", "", cpu["scale"]["fp32"], round(cpu["scale_deviation"] * cpu["scale"]["fp32"], 2), None],
            ["scale of kernels, bf16", "", cpu["scale"]["bf16"], None, gpu["scale"]["bf16"]]]
    for key, words, factor, unit in ROWS:
        values = [constants.get(part, {}).get(key) for constants, part in (
            (cpu, "costs_s"), (cpu, "deviations_s"), (gpu, "costs_s"))]
        cells = [float(f"{factor * value:.3g}") for value in values]
        rows.append([words, unit, *cells[:2], cells[2] or None])
    print(json.dumps({"tables": [{"name": "constants", "columns": ["cost", "unit", "cpu", "deviation", "gpu"],
                                  "rows": rows}]}))


if __name__ == "__main__":
    main()
