#!/usr/bin/env python3
"""Experiments of a job with the workload deepspeed, beside a separate launch of each.

Every chosen experiment of a results folder is launched again as a user would, by
torch.distributed.run, in a process of its own for each rank, with the same configuration, seed,
threads and script. Steps are timed and losses noted by hooks that share no code with the program.
    engine_launches.py RESULTS_DIR --python PY [--members 12] [--passes 2] [--steps 20] [--job COMMAND] -- train.py WORDS...
`$CONFIG` in WORDS is the configuration's file. Machines drift. So --job names the command of the job, with `$RESULTS`
for its results folder: it runs again before each further pass, and throughput in the job is the median of all. Run it
in the script's folder. Prints a row for each experiment, and the medians: throughput in the job and in the launches,
whether losses are equal, and the wall time of a launch beside what the experiment cost in the job.
"""

import argparse
import datetime
import glob
import json
import os
import runpy
import statistics
import subprocess
import sys
import tempfile
import time


def remove_buffers(port):
    """What DeepSpeed's all-reduce for CPUs leaves behind: 69 MB for each rank of a launch."""
    for path in glob.glob(f"/dev/shm/deepspeed_allreduce_buffer_*_{port}_*"):
        os.unlink(path)


def watch(out, steps, words):
    """Inside a launched rank: runs the script, and leaves after so many optimizer steps.

    Checkpoints are not written.
    """
    import random

    import deepspeed
    import numpy
    import torch

    times, losses, state = [], [], {"losses": [], "begin": None}
    original = deepspeed.initialize

    def initialize(*args, **kwargs):
        made = original(*args, **kwargs)
        engine = made[0]
        forward, backward, step = engine.forward, engine.backward, engine.step

        def timed_forward(*a, **k):
            if state["begin"] is None:
                state["begin"] = time.perf_counter()
            return forward(*a, **k)

        def noted_backward(loss, *a, **k):
            state["losses"].append(loss.detach())
            return backward(loss, *a, **k)

        def timed_step(*a, **k):
            before = engine.global_steps
            result = step(*a, **k)
            if engine.global_steps > before:
                now = time.perf_counter()
                times.append(now - state["begin"])
                losses.append(float(torch.stack([one.float().reshape(()) for one in state["losses"]]).mean()))
                state.update(losses=[], begin=now)
                if len(times) == steps:
                    with open(f"{out}.{os.environ['RANK']}", "w", encoding="utf-8") as file:
                        json.dump({"times": times, "losses": losses}, file)
                    torch.distributed.barrier()
                    if os.environ["RANK"] == "0":
                        remove_buffers(os.environ["MASTER_PORT"])
                    os._exit(0)
            return result

        engine.forward, engine.backward, engine.step = timed_forward, noted_backward, timed_step
        engine.save_checkpoint = lambda *a, **k: True
        return made

    deepspeed.initialize = initialize
    random.seed(0)
    numpy.random.seed(0)
    torch.manual_seed(0)
    sys.argv = words
    sys.path.insert(0, os.path.dirname(os.path.abspath(words[0])))
    runpy.run_path(words[0], run_name="__main__")


def launch(python, ranks, config, steps, words, threads):
    """(wall time, step times of the slowest rank, losses: mean over ranks)."""
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "ds_config.json")
        with open(file, "w", encoding="utf-8") as out:
            json.dump(config, out)
        told = os.path.join(folder, "told")
        command = [python, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(ranks),
                   os.path.abspath(__file__), "--watch", told, str(steps),
                   *[word.replace("$CONFIG", file) for word in words]]
        begin = time.perf_counter()
        done = subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": str(threads)}, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        wall_s = time.perf_counter() - begin
        if not os.path.exists(told + ".0"):
            print(done.stdout[-4000:], file=sys.stderr)
            raise SystemExit("a launch failed")
        all_ranks = []
        for rank in range(ranks):
            with open(f"{told}.{rank}", encoding="utf-8") as one:
                all_ranks.append(json.load(one))
    times = [max(one["times"][k] for one in all_ranks) for k in range(steps)]
    losses = [sum(one["losses"][k] for one in all_ranks) / ranks for k in range(steps)]
    return wall_s, times, losses


def experiments(results, members):
    """Evenly chosen experiments that ran: (name, metrics, configuration, ranks)."""
    found = []
    for name in sorted(os.listdir(results)):
        path = os.path.join(results, name, "metrics.json")
        if not os.path.isfile(path):
            continue
        with open(path, encoding="utf-8") as file:
            metrics = json.load(file)
        if metrics.get("status") != "ok":
            continue
        with open(os.path.join(results, name, "ds_config.json"), encoding="utf-8") as file:
            found.append((name, metrics, json.load(file), len(metrics["group"]["world_ranks"])))
    if members >= len(found):
        return found
    return [found[index * len(found) // members] for index in range(members)]


def throughput_in(results, name, samples):
    with open(os.path.join(results, name, "metrics.json"), encoding="utf-8") as file:
        metrics = json.load(file)
    return samples / statistics.median(metrics["step_times_s"][metrics["warmup_steps"]:])


def seconds_of(metrics):
    begin, end = (datetime.datetime.fromisoformat(metrics[key].replace("Z", "+00:00"))
                  for key in ("started_at", "finished_at"))
    return (end - begin).total_seconds() + sum(metrics.get("overhead_s", {}).get(phase, 0)
                                               for phase in ("build", "initialize"))


def main():
    if len(sys.argv) > 4 and sys.argv[1] == "--watch":
        watch(sys.argv[2], int(sys.argv[3]), sys.argv[4:])
        return
    parser = argparse.ArgumentParser()
    parser.add_argument("results")
    parser.add_argument("--python", required=True)
    parser.add_argument("--job")
    parser.add_argument("--members", type=int, default=12)
    parser.add_argument("--passes", type=int, default=2)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("words", nargs="+")
    given = parser.parse_args()
    ratios, spreads, walls, costs, equal = [], [], [], [], 0
    chosen = experiments(given.results, given.members)
    values, jobs = {}, [given.results]
    for turn in range(given.passes):
        if turn > 0 and given.job:
            jobs.append(f"{os.path.normpath(given.results)}.{turn + 1}")
            subprocess.run(given.job.replace("$RESULTS", jobs[-1]), shell=True, check=True, stdout=subprocess.DEVNULL)
        for name, metrics, config, ranks in chosen[::-1 if turn % 2 else 1]:
            wall_s, times, losses = launch(given.python, ranks, config, given.steps, given.words, given.threads)
            samples = config["train_batch_size"]
            values.setdefault(name, []).append(samples / statistics.median(times[3:]))
            walls.append(wall_s)
            same = metrics["losses"][:given.steps]
            equal += turn == 0 and same == losses[:len(same)]
            if turn == 0 and same != losses[:len(same)]:
                print(f"{name}: losses {same[:3]} in the job, {losses[:3]} in a launch")
    print(f"{'experiment':44} {'in the job':>10} {'launches':>21} {'ratio':>7}")
    for name, metrics, config, _ in chosen:
        inside = statistics.median(throughput_in(results, name, config["train_batch_size"]) for results in jobs)
        outside = statistics.median(values[name])
        ratios.append(inside / outside)
        spreads.append(max(values[name]) / min(values[name]) - 1)
        costs.append(seconds_of(metrics))
        print(f"{name:44} {inside:10.3f} {' '.join(f'{value:10.3f}' for value in values[name])} {ratios[-1]:7.3f}")
    print(f"ratio of throughput, median: {statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f}); "
          f"two launches differ by at most {max(spreads):.1%}")
    print(f"losses bit-equal: {equal} of {len(chosen)}")
    print(f"wall time of a launch: median {statistics.median(walls):.1f} s; of an experiment in the job, with its "
          f"steps: median {statistics.median(costs):.1f} s, at most {max(costs):.1f} s")


if __name__ == "__main__":
    main()
