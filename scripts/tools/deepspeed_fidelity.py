#!/usr/bin/env python3
"""Throughput that dstune-mpi measured and predicted against that of the same configurations in DeepSpeed.

Needs DeepSpeed 0.19.6 or 0.19.8 with PyTorch and Hugging Face transformers. Every experiment of a results folder is
trained again, on as many ranks as it had, once in each of several passes over all of them: on GPUs by NCCL where
PyTorch has some, else, or with DS_ACCELERATOR=cpu, on processors by gloo. Results and runs should be of one card.

    mpirun -np 2 build/release/dstune-mpi --results-dir DIR mpi_tests/bench/spaces/fidelity-gpt2.json
    python3 -m torch.distributed.run --standalone --nproc_per_node 2 scripts/tools/deepspeed_fidelity.py \\
        run mpi_tests/bench/spaces/fidelity-gpt2.config.json DIR --table table.json --runs RUNS

The same command goes on where it was stopped; with more --passes it adds some, with --only for some
experiments. RUNS/<name> has what `--calibrate` reads. Both at once, on network namespaces that stand for hosts with a
link of a given rate between them (as root, with iproute2; PYTHON has DeepSpeed):

    sudo scripts/tools/deepspeed_fidelity.py record mpi_tests/bench/spaces/fidelity-hosts-llama.json \\
        mpi_tests/bench/spaces/fidelity-llama.config.json DIR --table table.json --hosts 2 --rate 1gbit --python PYTHON

Then, where there is no DeepSpeed, too:

    scripts/tools/deepspeed_fidelity.py show table.json [--calibrated DIR2]

DIR2 holds the results of the same job with `--calibrate`.
"""
import argparse
import contextlib
import csv
import functools
import gc
import json
import math
import os
import pathlib
import random
import statistics
import sys
import time

sys.dont_write_bytecode = True  # nothing beside the scripts
METRIC = "throughput"


def read(path):
    return json.loads(pathlib.Path(path).read_text(encoding="utf-8"))


def write(path, value):
    """As a whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(path.name + ".new")
    new.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
    new.replace(path)


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


def make_engine(module_config, experiment):
    import deepspeed
    import torch
    import transformers

    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(module_config)
    model.train()
    if experiment["recompute"] == "block":
        model.gradient_checkpointing_enable()
    elif experiment["recompute"] != "none":
        sys.exit(f"{experiment['name']}: transformers has no recompute mode \"{experiment['recompute']}\"")
    config = {key: value for key, value in experiment["ds_config"].items() if key != "autotuning"}
    return deepspeed.initialize(model=model, config=config, model_parameters=model.parameters())[0]


def forget(engine):
    """DeepSpeed keeps a stage-3 engine with its model in a list and in the cache of a method."""
    import deepspeed
    from deepspeed.runtime.zero import parameter_offload, partitioned_param_coordinator

    engine.destroy()
    del engine
    parameter_offload.FWD_MODULE_STACK.clear()
    for method in vars(partitioned_param_coordinator.PartitionedParameterCoordinator).values():
        for cell in getattr(method, "__closure__", None) or ():
            with contextlib.suppress(ValueError):  # an empty cell
                if hasattr(cell.cell_contents, "cache_clear"):
                    cell.cell_contents.cache_clear()
    getattr(deepspeed.runtime.utils, "graph_cache", {}).clear()  # until 0.19.6
    gc.collect()
    deepspeed.accelerator.get_accelerator().empty_cache()


def choose_device():
    """This rank's device, before DeepSpeed is imported."""
    import torch

    if os.environ.get("DS_ACCELERATOR") == "cpu" or not torch.cuda.is_available():
        os.environ["DS_ACCELERATOR"] = "cpu"
        torch.set_num_threads(1)
        return torch.device("cpu")
    os.environ["DS_ACCELERATOR"] = "cuda"
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    torch.cuda.set_device(device)
    return device


def slowest_rank(seconds, device):
    """All ranks call it."""
    import torch

    slowest = torch.tensor(seconds, dtype=torch.float64, device=device)
    torch.distributed.all_reduce(slowest, torch.distributed.ReduceOp.MAX)
    return slowest.item()


def step_times(module_config, experiment, device, budget_s, least_steps):
    """Seconds of optimizer steps, the slowest rank's, after one that warms up and one that traces."""
    import torch

    def now():
        if device.type == "cuda":  # a launch is not what is timed
            torch.cuda.synchronize(device)
        return time.perf_counter()

    engine = make_engine(module_config, experiment)
    micro, micro_steps = engine.train_micro_batch_size_per_gpu(), engine.gradient_accumulation_steps()
    tokens = torch.randint(module_config.vocab_size, (micro, experiment["sequence_length"]), device=device)
    seconds = []
    while len(seconds) < 2 + least_steps or sum(seconds[2:]) < budget_s:
        torch.distributed.barrier()
        begin = now()
        for _ in range(micro_steps):
            loss = engine(input_ids=tokens, labels=tokens).loss
            engine.backward(loss)
            engine.step()
        seconds.append(slowest_rank(now() - begin, device))
    forget(engine)
    return seconds[2:]


def unlink_shared_memory():
    """DeepSpeed's shared memory of ranks on CPUs (69 MB each) outlives them otherwise."""
    port, rank = os.environ.get("MASTER_PORT", ""), os.environ.get("RANK", "")
    for path in pathlib.Path("/dev/shm").glob(f"deepspeed_allreduce_buffer_*_{port}_{rank}"):
        path.unlink()


def order_of_pass(names, index):
    """Each pass has another order: what drifts concerns all alike."""
    names = sorted(names)
    random.Random(index).shuffle(names)
    return names


def in_target_time(metrics):
    """Where members were ranked by that."""
    found = {"measured_target": metrics.get("target", {}).get(METRIC),
             "predicted_target": metrics["predicted"].get("target_" + METRIC)}
    return {key: round(value, 3) for key, value in found.items() if value}


def new_table(options, experiments, versions):
    shared = {**versions, "model": read(options.model)}
    return {**shared, "experiments": [
        {"name": name, "ds_config": experiment["ds_config"], "recompute": experiment["recompute"],
         "sequence_length": experiment["sequence_length"], "deepspeed": [],
         "measured": round(metrics[METRIC], 3), "predicted": round(metrics["predicted"][METRIC] or math.nan, 3),
         **in_target_time(metrics)}
        for name, (experiment, metrics) in experiments.items()]}


def resumed_table(options, experiments, versions):
    """What the table has already counts for the same configurations and versions alone."""
    table = new_table(options, experiments, versions)
    if not options.table.is_file():
        return table
    old = read(options.table)
    for key in [*versions, "model", "device"]:
        if old.get(key) != table.get(key):
            sys.exit(f"{options.table}: its {key} is another one: {old.get(key)}")
    known = {row["name"]: row for row in old["experiments"]}
    for row in table["experiments"]:
        before = known.get(row["name"], row)
        if any(before[key] != row[key] for key in ("ds_config", "recompute", "sequence_length")):
            sys.exit(f"{options.table}: {row['name']} is another configuration there")
        row["deepspeed"] = before["deepspeed"]
    return table


def write_runs(options, table, experiments):
    for row in table["experiments"]:
        if not row["deepspeed"]:
            continue
        folder, experiment = options.runs / row["name"], experiments[row["name"]][0]
        throughput = statistics.mean(row["deepspeed"])
        latency_us = experiment["ds_config"]["train_batch_size"] / throughput * 1e6
        write(folder / "exp.json", experiment)
        write(folder / "ds_config.json", experiment["ds_config"])
        write(folder / "metrics.json", {METRIC: throughput, "latency": latency_us})


def run(options):
    try:
        device = choose_device()
        import deepspeed
        import torch
        import transformers
    except ImportError as error:
        sys.exit(f"deepspeed_fidelity.py needs DeepSpeed: {error}")
    import logging

    import quiet

    deepspeed.utils.logger.setLevel(logging.ERROR)
    deepspeed.init_distributed(dist_backend="nccl" if device.type == "cuda" else "gloo", verbose=False)
    is_first = torch.distributed.get_rank() == 0
    versions = {"deepspeed": deepspeed.__version__, "torch": torch.__version__,
                "transformers": transformers.__version__, "ranks": torch.distributed.get_world_size()}
    if device.type == "cuda":
        versions["device"] = torch.cuda.get_device_name(device)
    if options.network:
        versions["network"] = options.network
    module_config = transformers.AutoConfig.for_model(**read(options.model))
    experiments = experiments_of(options.results)
    unknown = set(options.only or []) - set(experiments)
    if unknown:
        sys.exit(f"no experiment of {options.results}: {', '.join(sorted(unknown))}")
    # All ranks read the table that the first one goes on with.
    table = resumed_table(options, experiments, versions)
    rows = {row["name"]: row for row in table["experiments"]}
    torch.distributed.barrier()
    machine = quiet.Quiet(lambda seconds: slowest_rank(seconds, device), limit_s=options.wait)
    for index in range(options.passes):
        for name in order_of_pass(options.only or experiments, index):
            if len(rows[name]["deepspeed"]) > index:
                continue
            experiment = experiments[name][0]
            measure = functools.partial(step_times, module_config, experiment, device, options.budget, options.steps)
            step_s = statistics.median(machine.timed(measure) if options.wait > 0 else measure())
            rows[name]["deepspeed"].append(round(experiment["ds_config"]["train_batch_size"] / step_s, 3))
            if is_first:
                print(f"pass {index + 1}: {name}: {step_s:.4f} s a step", flush=True)
                table["quiet"] = machine.summary()
                write(options.table, table)
    unlink_shared_memory()
    if is_first and options.runs:
        write_runs(options, table, experiments)


def record(options):
    """The space in our own step and in DeepSpeed, on emulated hosts."""
    import emulated_hosts

    network = f"{options.hosts} hosts x {options.ranks}, {emulated_hosts.rate_text(options.rate)}"
    with emulated_hosts.emulated(options.rate, options.hosts):
        limit = ["--time-limit", options.time_limit] if options.time_limit else []
        emulated_hosts.mpirun(options.hosts, options.ranks, os.path.abspath(options.program), *limit, "--results-dir",
                              options.results, "--exps-dir", f"{options.results}-exps", options.space)
        again = ["--table", options.table, "--budget", options.budget, "--steps", options.steps,
                 "--passes", options.passes, "--network", network]
        again += ["--wait", options.wait]
        again += ["--runs", options.runs] if options.runs else []
        again += ["--only", *options.only] if options.only else []
        emulated_hosts.torch_ranks(options.hosts, options.ranks, 29613, options.python, os.path.abspath(__file__),
                                   "run", options.model, options.results, *again, stdout=None)


# What follows only computes.


def ranks(values):
    """From 0, equal ones share the mean of theirs."""
    order = sorted(values)
    return [order.index(value) + (order.count(value) - 1) / 2 for value in values]


def correlation(one, other):
    return statistics.correlation(ranks(one), ranks(other))


def figures_of(estimates, truth):
    """How well estimates order the truth, their mean error after one common scale, and what taking their best one
    costs."""
    pick = max(range(len(truth)), key=estimates.__getitem__)
    scale = statistics.median(true / estimate for true, estimate in zip(truth, estimates))
    error = statistics.mean(abs(scale * estimate / true - 1)
                            for true, estimate in zip(truth, estimates))
    return correlation(estimates, truth), 100 * error, 100 * (1 - truth[pick] / max(truth))


def row_text(title, estimates, truth):
    return "| {} | {:.3f} | {:.1f} % | {:.1f} % |".format(title, *figures_of(estimates, truth))


ESTIMATES = {"measured": "measured", "predicted": "predicted", "measured_target": "measured, in the target's time",
             "predicted_target": "predicted, in the target's time"}


def print_json(paths):
    """Tables for scripts/figures.py."""
    columns = ["table", "members", "passes", "again", *(key + figure for key in ESTIMATES
                                                        for figure in ("", "_error", "_regret"))]
    rows = []
    for path in paths:
        runs = [row for row in read(path)["experiments"] if len(row["deepspeed"]) >= 2]
        odd, even = ([statistics.mean(row["deepspeed"][first::2]) for row in runs] for first in (0, 1))
        truth = [statistics.mean(row["deepspeed"]) for row in runs]
        cells = [pathlib.Path(path).stem, len(runs), len(runs[0]["deepspeed"]), correlation(even, odd)]
        for key in ESTIMATES:
            known = all(key in row for row in runs)
            cells += figures_of([row[key] for row in runs], truth) if known else [None, None, None]
        rows.append(cells)
    print(json.dumps({"tables": [{"name": "shown", "columns": columns, "rows": rows}]}))


def show(options):
    if options.json:
        print_json(options.table)
        return
    table = read(options.table[0])
    rows = [row for row in table["experiments"] if len(row["deepspeed"]) >= 2]
    odd, even = ([statistics.mean(row["deepspeed"][first::2]) for row in rows] for first in (0, 1))
    truth = [statistics.mean(row["deepspeed"]) for row in rows]
    passes = [len(row["deepspeed"]) for row in rows]
    best = max(range(len(rows)), key=odd.__getitem__)
    spread = statistics.mean(abs(one - other) / both for one, other, both in zip(odd, even, truth))
    where = "".join(f" on {table[key]}" for key in ("device", "network") if key in table)
    print(f"{len(rows)} configurations, {table['ranks']} ranks{where}; DeepSpeed {table['deepspeed']}, "
          f"PyTorch {table['torch']}, {min(passes)} to {max(passes)} passes; odd and even ones are "
          f"{100 * spread:.1f} % apart\n")
    print(f"Best by the odd passes: {rows[best]['name']}, by the even ones "
          f"{100 * (even[best] / statistics.median(even) - 1):.1f} % above the median.\n")
    print("| | rank correlation with DeepSpeed | mean error after one common scale | "
          "DeepSpeed's best is faster than this one's best there by |")
    print("| --- | --- | --- | --- |")
    print(row_text("DeepSpeed's even passes for its odd ones", even, odd))
    for key, title in ESTIMATES.items():
        if all(key in row for row in rows):
            print(row_text(title, [row[key] for row in rows], truth))
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
    runner.add_argument("--network", help="how the ranks are connected, for the table")
    runner.set_defaults(work=run)
    recorder = modes.add_parser("record", help="our own step and DeepSpeed, on emulated hosts (as root)")
    recorder.add_argument("space", help="space file of dstune-mpi")
    recorder.add_argument("--hosts", type=int, default=2, choices=(2, 3, 4))
    recorder.add_argument("--rate", required=True, help="of each host's link: 200mbit, 1gbit")
    recorder.add_argument("--ranks", type=int, default=1, help="of each host (default 1)")
    recorder.add_argument("--time-limit", help="of dstune-mpi's job, finals included: 20m")
    recorder.add_argument("--program", default="build/release/dstune-mpi")
    recorder.add_argument("--python", default=sys.executable, help="has DeepSpeed")
    recorder.set_defaults(work=record)
    for one in (runner, recorder):
        one.add_argument("model", help="Hugging Face config.json")
        one.add_argument("results", help="results folder of dstune-mpi")
        one.add_argument("--runs", type=pathlib.Path, help="where each run's files go")
        one.add_argument("--table", type=pathlib.Path, required=True, help="where the figures go")
        one.add_argument("--budget", type=float, default=2, help="seconds of timed steps (default 2)")
        one.add_argument("--steps", type=int, default=5, help="at least so many (default 5)")
        one.add_argument("--passes", type=int, default=3, help="of each experiment (default 3)")
        one.add_argument("--wait", type=float, default=60,
                         help="seconds to wait for a quiet machine before a run, which is made again where it was not "
                              "quiet then; 0: none of this (default 60)")
        one.add_argument("--only", nargs="+", metavar="NAME", help="these experiments alone")
    shower = modes.add_parser("show", help="compare")
    shower.add_argument("table", nargs="+", help="several with --json alone")
    shower.add_argument("--json", action="store_true", help="for scripts/figures.py")
    shower.add_argument("--calibrated", help="results folder of the job with --calibrate")
    shower.set_defaults(work=show)
    options = parser.parse_args()
    options.work(options)


if __name__ == "__main__":
    main()
