#!/usr/bin/env python3
"""Throughput that dstune-mpi measured and predicted against that of the same configurations in DeepSpeed.

Needs DeepSpeed 0.19.6 with PyTorch and Hugging Face transformers; no GPU. Every experiment of a results
folder is trained again, on as many ranks (gloo) as it had:

    mpirun -np 2 build/release/dstune-mpi --results-dir DIR mpi_tests/bench/spaces/fidelity-gpt2.json
    python3 -m torch.distributed.run --standalone --nproc_per_node 2 scripts/deepspeed_fidelity.py \\
        run mpi_tests/bench/spaces/fidelity-gpt2.config.json DIR --runs RUNS --table table.json

RUNS/<name> has what `--calibrate` reads. Then, where there is no DeepSpeed, too:

    scripts/deepspeed_fidelity.py show table.json [--calibrated DIR2]

DIR2 holds the results of the same job with `--calibrate`.
"""
import argparse
import csv
import json
import math
import os
import pathlib
import statistics
import sys
import time

sys.dont_write_bytecode = True  # nothing beside the scripts
METRIC = "throughput"


def read(path):
    return json.loads(pathlib.Path(path).read_text(encoding="utf-8"))


def write(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")


def experiments_of(results):
    """{name: exp.json, metrics.json} of what ended well."""
    found = {}
    for folder in sorted(pathlib.Path(results).iterdir()):
        if (folder / "metrics.json").is_file():
            metrics = read(folder / "metrics.json")
            if metrics["status"] == "ok":
                found[folder.name] = read(folder / "exp.json"), metrics
    return found


# What follows runs where DeepSpeed is.


def step_times(module_config, experiment, budget_s, least_steps):
    """Seconds of optimizer steps, the slowest rank's, after one that warms up and one that traces."""
    import deepspeed
    import torch
    import transformers

    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(module_config)
    model.train()
    config = {key: value for key, value in experiment["ds_config"].items() if key != "autotuning"}
    engine, *_ = deepspeed.initialize(model=model, config=config, model_parameters=model.parameters())
    micro, micro_steps = engine.train_micro_batch_size_per_gpu(), engine.gradient_accumulation_steps()
    tokens = torch.randint(module_config.vocab_size, (micro, experiment["sequence_length"]))
    seconds = []
    while True:
        torch.distributed.barrier()
        begin = time.perf_counter()
        for _ in range(micro_steps):
            loss = engine(input_ids=tokens, labels=tokens).loss
            engine.backward(loss)
            engine.step()
        slowest = torch.tensor(time.perf_counter() - begin, dtype=torch.float64)
        torch.distributed.all_reduce(slowest, torch.distributed.ReduceOp.MAX)
        seconds.append(slowest.item())
        if len(seconds) >= 2 + least_steps and sum(seconds[2:]) >= budget_s:
            break
    engine.destroy()
    return seconds[2:]


def run(options):
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    try:
        import deepspeed
        import torch
        import transformers
    except ImportError as error:
        sys.exit(f"deepspeed_fidelity.py needs DeepSpeed: {error}")
    import logging

    deepspeed.utils.logger.setLevel(logging.ERROR)
    torch.set_num_threads(1)
    deepspeed.init_distributed(dist_backend="gloo", verbose=False)
    module_config = transformers.AutoConfig.for_model(**read(options.model))
    experiments = experiments_of(options.results)
    is_first = torch.distributed.get_rank() == 0
    # Twice over the whole list, once in each direction: what drifts concerns all alike.
    seconds = {name: [] for name in experiments}
    for names in (list(experiments), list(reversed(experiments))):
        for name in names:
            seconds[name].append(statistics.median(
                step_times(module_config, experiments[name][0], options.budget, options.steps)))
            if is_first:
                print(f"{name}: {seconds[name][-1]:.4f} s a step", flush=True)
    if not is_first:
        return
    rows = []
    for name, (experiment, metrics) in experiments.items():
        batch = experiment["ds_config"]["train_batch_size"]
        step_s = statistics.mean(seconds[name])
        rows.append({"name": name, "ds_config": experiment["ds_config"],
                     "deepspeed": [round(batch / value, 3) for value in seconds[name]],
                     "measured": round(metrics[METRIC], 3),
                     "predicted": round(metrics["predicted"][METRIC] or math.nan, 3)})
        folder = options.runs / name
        write(folder / "exp.json", experiment)
        write(folder / "ds_config.json", experiment["ds_config"])
        write(folder / "metrics.json", {METRIC: batch / step_s, "latency": step_s * 1e6})
    write(options.table, {"deepspeed": deepspeed.__version__, "torch": torch.__version__,
                          "transformers": transformers.__version__,
                          "ranks": torch.distributed.get_world_size(), "model": read(options.model),
                          "experiments": rows})


# What follows only computes.


def ranks(values):
    """From 0, equal ones share the mean of theirs."""
    order = sorted(values)
    return [order.index(value) + (order.count(value) - 1) / 2 for value in values]


def correlation(one, other):
    return statistics.correlation(ranks(one), ranks(other))


def row_text(title, estimates, truth):
    """How well estimates order the truth, and what taking their best one costs."""
    pick = max(range(len(truth)), key=estimates.__getitem__)
    scale = statistics.median(true / estimate for true, estimate in zip(truth, estimates))
    error = statistics.mean(abs(scale * estimate / true - 1)
                            for true, estimate in zip(truth, estimates))
    return (f"| {title} | {correlation(estimates, truth):.3f} | {100 * error:.1f} % | "
            f"{100 * (1 - truth[pick] / max(truth)):.1f} % |")


def show(options):
    table = read(options.table)
    rows = table["experiments"]
    truth = [statistics.mean(row["deepspeed"]) for row in rows]
    spread = statistics.mean(abs(row["deepspeed"][0] - row["deepspeed"][1]) / mean
                             for row, mean in zip(rows, truth))
    print(f"{len(rows)} configurations, {table['ranks']} ranks; DeepSpeed {table['deepspeed']}, "
          f"PyTorch {table['torch']}, two runs of each {100 * spread:.1f} % apart\n")
    print("| | rank correlation with DeepSpeed | mean error after one common scale | "
          "DeepSpeed's best is faster than this one's best there by |")
    print("| --- | --- | --- | --- |")
    print(row_text("DeepSpeed's second run for its first",
                   [row["deepspeed"][1] for row in rows], [row["deepspeed"][0] for row in rows]))
    print(row_text("measured", [row["measured"] for row in rows], truth))
    print(row_text("predicted", [row["predicted"] for row in rows], truth))
    if options.calibrated:
        folder = pathlib.Path(options.calibrated)
        with (folder / "results.csv").open(encoding="utf-8", newline="") as file:
            values = {line["name"]: line["value"] for line in csv.DictReader(file)}
        runs = read(folder / "optimal.json")["calibration"]["runs"]
        print(row_text(f"measured, calibrated with {len(runs)} runs",
                       [float(values[row["name"]]) for row in rows], truth))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    modes = parser.add_subparsers(required=True)
    runner = modes.add_parser("run", help="train the experiments under DeepSpeed")
    runner.add_argument("model", help="Hugging Face config.json")
    runner.add_argument("results", help="results folder of dstune-mpi")
    runner.add_argument("--runs", type=pathlib.Path, required=True, help="where each run's files go")
    runner.add_argument("--table", type=pathlib.Path, required=True, help="where the figures go")
    runner.add_argument("--budget", type=float, default=2, help="seconds of timed steps (default 2)")
    runner.add_argument("--steps", type=int, default=5, help="at least so many (default 5)")
    runner.set_defaults(work=run)
    shower = modes.add_parser("show", help="compare")
    shower.add_argument("table")
    shower.add_argument("--calibrated", help="results folder of the job with --calibrate")
    shower.set_defaults(work=show)
    options = parser.parse_args()
    options.work(options)


if __name__ == "__main__":
    main()
