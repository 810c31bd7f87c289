#!/usr/bin/env python3
"""Writes what DeepSpeed itself makes of names, lists, variables and batch sizes, as test vectors.

Needs DeepSpeed 0.19.6 with PyTorch; no GPU.

    python3 scripts/tools/deepspeed_vectors.py mpi_tests/unit/space/data/deepspeed_vectors.json
"""

import contextlib
import io
import json
import random
import sys

with contextlib.redirect_stdout(io.StringIO()):
    import deepspeed
    from deepspeed.autotuning import utils
    from deepspeed.runtime import config as config_module

SEED = 20260801


def scalar(rng):
    return rng.choice([
        True, False, None, 0, 1, 8, 64, 9000, 9001, 65536, 5e7, 1e9, 123456789, -1, 0.5, 0.1, 1e-5,
        2.5e-7, 9000.5, 1e12, "cpu", "nvme", "/local/nvme", "none", [0.9, 0.95], [1, [2, "a"]], []
    ])


def offload(rng):
    keys = rng.sample(["device", "pin_memory", "buffer_count", "ratio", "nvme_path", "max_in_cpu"],
                      rng.randint(0, 4))
    return {key: scalar(rng) for key in keys}


def random_config(rng):
    zero_keys = ["stage", "reduce_bucket_size", "allgather_bucket_size", "overlap_comm",
                 "contiguous_gradients", "stage3_prefetch_bucket_size", "round_robin_gradients"]
    zero = {key: scalar(rng) for key in rng.sample(zero_keys, rng.randint(0, len(zero_keys)))}
    for key in ("offload_param", "offload_optimizer"):
        if rng.random() < 0.4:
            zero[key] = rng.choice([None, offload(rng), offload(rng)])
    top = {}
    sections = [("zero_optimization", zero), ("train_micro_batch_size_per_gpu", rng.choice([1, 8, 10240])),
                ("gradient_accumulation_steps", rng.randint(1, 9)), ("fp16", {"enabled": True, "loss_scale": 0}),
                ("gradient_clipping", 1.0), ("arg_mappings", {"train_batch_size": "--b"}),
                ("optimizer", {"type": "Adam", "params": {"lr": 1e-4, "betas": [0.9, 0.95]}})]
    rng.shuffle(sections)
    for key, value in sections[:rng.randint(0, len(sections))]:
        top[key] = value
    return top


def names(rng):
    keys = ["stage", "reduce_bucket_size", "allgather_bucket_size", "overlap_comm", "enabled", "lr",
            "contiguous_gradients", "stage3_prefetch_bucket_size", "loss_scale", "betas", "device"]
    vectors = []
    while len(vectors) < 200:
        config = random_config(rng)
        tuning_keys = rng.sample(keys, rng.randint(0, len(keys)))
        prefix = rng.choice(["", "z1_", "z3_"])
        omit = rng.random() < 0.2
        vectors.append({
            "config": config, "keys": tuning_keys, "prefix": prefix, "omit_values": omit,
            "name": utils.canonical_name(config, list(tuning_keys), prefix, omit)
        })
    return vectors


def spaces(rng):
    """Documents that both understand, and the values of their lists in the order of all configs."""
    candidates = {
        "reduce_bucket_size": [50000000, 500000000, 1000000],
        "overlap_comm": [True, False],
        "reduce_scatter": [False, True],
        "contiguous_gradients": [True, False],
        "use_multi_rank_bucket_allreduce": [False, True],
    }
    vectors = []
    for _ in range(40):
        chosen = rng.sample(sorted(candidates), rng.randint(0, 4))
        zero = {"stage": rng.sample([1, 2, 3], rng.randint(1, 3))}
        for key in chosen:
            values = candidates[key]
            zero[key] = rng.sample(values, rng.randint(1, len(values)))
        space = {}
        parts = [("zero_optimization", zero),
                 ("train_micro_batch_size_per_gpu", rng.sample([1, 2, 4, 8], rng.randint(1, 3))),
                 ("gradient_accumulation_steps", rng.sample([1, 2, 3], rng.randint(1, 2))),
                 ("gradient_clipping", rng.sample([0.5, 1.0, 2.0], rng.randint(1, 2)))]
        rng.shuffle(parts)
        for key, value in parts:
            space[key] = value
        vectors.append({"space": space,
                        "configs": utils.get_all_configs(space, ignore_keys=["optimizer"])})
    return vectors


def variables(rng):
    table = {"foo": "bar", "n": 7, "rate": 0.5, "on": True, "long_name": "x"}
    texts = ["$FOO", "$foo", "$N", "pre/$FOO/post", "$FOO/$LONG_NAME", "$NVME_PATH/x", "a$Rate.b", "$ON",
             "cost: 5", "$LONG_NAME-$FOO", "plain", "$Foo,$foo", "$N%"]
    vectors = []
    for text in texts:
        target = {"key": text}
        try:
            utils.find_replace(target, dict(table))
        except AssertionError as error:  # two variables that are no texts
            vectors.append({"text": text, "refused": str(error)})
            continue
        vectors.append({"text": text, "result": target["key"]})
    unknown = []
    for text in ["$NO", "pre_$FOO_post", "$FOOL", "$_"]:
        try:
            utils.find_replace({"key": text}, dict(table))
        except AssertionError:
            unknown.append(text)
    return {"variables": table, "replaced": vectors, "unknown": unknown}


def batches():
    # Without a process group DeepSpeed would take the world for 1.
    config_module.dist.get_rank = lambda: 0

    class Parallel:
        def __init__(self, size):
            self.size = size

        def get_data_parallel_world_size(self):
            return self.size

    choices = [None, 1, 2, 3, 8, 17, 32, 33]
    vectors = []
    for world in (1, 2, 4):
        for total in choices:
            for micro in choices:
                for steps in choices:
                    config = {"train_batch_size": total, "train_micro_batch_size_per_gpu": micro,
                              "gradient_accumulation_steps": steps}
                    config = {key: value for key, value in config.items() if value is not None}
                    try:
                        made = config_module.DeepSpeedConfig(config, mpu=Parallel(world))
                        result = [made.train_batch_size, made.train_micro_batch_size_per_gpu,
                                  made.gradient_accumulation_steps]
                    except AssertionError:
                        result = None
                    vectors.append([world, total, micro, steps, result])
    return vectors


def main():
    rng = random.Random(SEED)
    with contextlib.redirect_stdout(io.StringIO()):
        vectors = {"made_by": f"scripts/tools/deepspeed_vectors.py with DeepSpeed {deepspeed.__version__}",
                   "names": names(rng), "spaces": spaces(rng), "variables": variables(rng),
                   "batches": batches()}
    with open(sys.argv[1], "w") as file:
        file.write("{\n")
        file.write(",\n".join(f"{json.dumps(key)}: " +
                              ("[\n" + ",\n".join(map(json.dumps, value)) + "\n]"
                               if isinstance(value, list) else json.dumps(value))
                              for key, value in vectors.items()))
        file.write("\n}\n")


if __name__ == "__main__":
    main()
