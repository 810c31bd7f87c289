#!/usr/bin/env python3
"""Does the installed DeepSpeed take what dstune-mpi answers? Random members of random spaces, planned for
its version: each is given to its DeepSpeedConfig, and some train one step on two ranks (gloo, CPUs).

    check_deepspeed_configs.py --program build/release/dstune-mpi --members 200 --train 50

Exit code 1 where DeepSpeed refuses one. Needs no GPU and no compiler.
"""

import argparse
import collections
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

import check_deepspeed_engine
import check_deepspeed_schema

DATA = pathlib.Path(__file__).resolve().parents[2] / "mpi_tests/unit/core/data"
PER_SPACE = 4  # members of a space

# Of these a space has some, with a list of some of the values. What the release does not know is left out.
ZERO = {
    "reduce_bucket_size": [1000, 200000, 500000000], "allgather_bucket_size": [1000, 200000],
    "allgather_partitions": [True, False], "reduce_scatter": [True, False],
    "overlap_comm": [True, False], "contiguous_gradients": [True, False],
    "round_robin_gradients": [True, False], "use_multi_rank_bucket_allreduce": [True, False],
    "ignore_unused_parameters": [True, False], "sub_group_size": [10000, 1000000000],
    "stage3_prefetch_bucket_size": [0, 5000, 50000000], "stage3_max_live_parameters": [0, 1000000000],
    "stage3_max_reuse_distance": [0, 1000000000], "stage3_param_persistence_threshold": [0, 100, 100000],
    "stage3_gather_16bit_weights_on_model_save": [True, False],
    "stage3_module_granularity_threshold": [0, 1000], "log_trace_cache_warnings": [True],
    "enable_sanity_checks": [True, False], "stage3_allgather_sequential": [True, False],
    "leaf_module": [{"names": []}], "save_muon_momentum_buffer_in_memory": [False],
    "compute_grad_norm": [True, False], "parameter_alignment": [True, False],
    "elastic_checkpoint": [False], "zero_hpz_partition_size": [1, 2],
    "mics_shard_size": [-1], "mics_hierarchical_params_gather": [False],
    "offload_optimizer": [None, {"device": "cpu"}, {"device": "cpu", "pin_memory": False},
                          {"device": "none"}, {"device": "cpu", "pin_memory": True}],
    "offload_param": [None, {"device": "cpu"}, {"device": "cpu", "pin_memory": True}],
}
TOP = {
    "gradient_clipping": [0, 0.5, 1.0], "prescale_gradients": [False, True],
    "gradient_predivide_factor": [1.0, 2.0], "steps_per_print": [1, 1000],
    "wall_clock_breakdown": [False, True], "dump_state": [False], "memory_breakdown": [False, True],
    "communication_data_type": ["fp32"], "gradient_allreduce_op": ["mean"],
    "managed_gradient_accumulation": [True], "disable_python_gc": [False, True],
    "zero_allow_untested_optimizer": [True, False], "dataloader_drop_last": [True],
    "sparse_gradients": [False], "graph_harvesting": [False],
    "data_types": [{"grad_accum_dtype": "fp32"}], "torch_autocast": [{"enabled": False}],
    "activation_checkpointing": [{"partition_activations": False, "number_checkpoints": 2}],
    "aio": [{"block_size": 262144, "queue_depth": 16}], "flops_profiler": [{"enabled": False}],
    "checkpoint": [{"tag_validation": "Ignore"}], "comms_logger": [{"enabled": False}],
    "tensorboard": [{"enabled": False}], "wandb": [{"enabled": False}], "csv_monitor": [{"enabled": False}],
    "hybrid_engine": [{"enabled": False, "max_out_tokens": 256}], "compile": [{"deepcompile": False}],
    "amp": [{"enabled": False}], "elasticity": [{"enabled": False}], "pipeline": [{}],
    "curriculum_learning": [{"enabled": False}], "progressive_layer_drop": [{"enabled": False}],
    "eigenvalue": [{"enabled": False}], "nebula": [{"enabled": False}],
    "scheduler": [{"type": "WarmupLR", "params": {"warmup_num_steps": 10}}],
}
PRECISIONS = [{}, {}, {"bf16": {"enabled": True}}, {"bf16": {"enabled": True, "immediate_grad_update": True}},
              {"bf16": {"enabled": True, "check_grad_overflow": False}}, {"fp16": {"enabled": True}},
              {"fp16": {"enabled": True, "loss_scale": 128, "loss_scale_window": 100}}]
OPTIMIZERS = [{"type": kind, "params": {"lr": 1e-4, **more}} for kind in ("AdamW", "Adam")
              for more in ({"weight_decay": 0.1}, {"torch_adam": True}, {"torch_adam": True},
                           {"torch_adam": True, "betas": [0.9, 0.95]})]


def random_space(draw, knows):
    """A document; knows(pointer): the release has the key."""
    def some(keys, section, count):
        names = [name for name in keys if knows(f"{section}/{name}")]
        # One value stands without brackets: what is removed is dropped there, not among candidates.
        drawn = {name: draw.sample(keys[name], draw.randint(1, len(keys[name])))
                 for name in draw.sample(names, count)}
        return {name: values if len(values) > 1 else values[0] for name, values in drawn.items()}

    precision = {section: {name: value for name, value in content.items() if knows(f"/{section}/{name}")}
                 for section, content in draw.choice(PRECISIONS).items()}
    document = {
        "dstune": {
            "model": {"family": "gpt2", "hidden_size": 64, "num_layers": 2, "num_heads": 4,
                      "intermediate_size": 128, "vocab_size": 128},
            "sequence_length": 16, "device_memory": "8GiB",
            "resources": {"num_gpus": draw.choice([[2], [2], [1, 2, 4]])},
        },
        "autotuning": {"enabled": True},
        "train_micro_batch_size_per_gpu": [1, 2], "gradient_accumulation_steps": [1, 2],
        "optimizer": draw.choice(OPTIMIZERS), "zero_force_ds_cpu_optimizer": False, **precision,
        **some(TOP, "", draw.randint(2, 5)),
        "zero_optimization": {"stage": sorted(draw.sample(range(4), draw.randint(1, 3))),
                              **some(ZERO, "/zero_optimization", draw.randint(2, 5))},
    }
    return document


def planned(program, version, document):
    """(what was refused, members as (number of ranks, config))"""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(document, file)
        file.flush()
        done = subprocess.run([*program.split(), "plan", "--deepspeed-version", version, "--format",
                               "json", file.name], capture_output=True, text=True, check=False)
    if done.returncode == 3:
        return done.stderr.strip().splitlines()[0].replace(file.name, "space"), []
    if done.returncode not in (0, 4):
        raise SystemExit(f"{program} ends with {done.returncode}: {done.stderr}\n{json.dumps(document)}")
    return None, [(experiment["num_gpus"], experiment["ds_config"])
                  for experiment in json.loads(done.stdout)["experiments"]
                  if experiment["status"] != "pruned"]


def draw_members(options, engine):
    """Members of spaces that dstune-mpi takes, and how often it refused a space, by its words."""
    draw = random.Random(options.seed)
    tables = check_deepspeed_schema.read_all(DATA)
    table = next(table for table in tables if table["deepspeed"] == engine.version)
    refused = collections.Counter()
    members, spaces = [], 0

    def knows(pointer):
        # What was removed is there as well: it is dropped where it had no effect.
        return any(pointer in known["keys"] for known in tables
                   if known["deepspeed"] == engine.version or pointer in table["removed"])

    while len(members) < options.members:
        refusal, found = planned(options.program, engine.version, random_space(draw, knows))
        spaces += 1
        if refusal:
            refused[refusal] += 1
        members += draw.sample(found, min(PER_SPACE, len(found)))
        if spaces > options.members:
            raise SystemExit(f"most spaces are refused: {refused.most_common(5)}")
    return members[:options.members], spaces, refused


def runs_on_gloo(config):
    """No compiled operator, and no precision that the processor lacks."""
    zero = config.get("zero_optimization", {})
    return (config["optimizer"]["params"].get("torch_adam") is True and "fp16" not in config
            and zero.get("zero_hpz_partition_size", 1) == 1)


def train_all(configs, folder):
    """[refusal or None] of each: one step on two ranks. A run that ends early goes on behind the config at
    which it ended."""
    todo = pathlib.Path(folder) / "configs.json"
    said = pathlib.Path(folder) / "said.jsonl"
    todo.write_text(json.dumps(configs))
    said.write_text("")
    results = []
    while len(results) < len(configs):
        done = subprocess.run([sys.executable, "-m", "torch.distributed.run", "--standalone",
                               "--nproc_per_node", "2", __file__, "--step", str(todo), "--from",
                               str(len(results)), "--said", str(said)],
                              capture_output=True, text=True, check=False,
                              env={**os.environ, "DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"})
        more = [json.loads(line) for line in said.read_text().splitlines()]
        if len(more) < len(configs):
            lines = [line for line in done.stderr.splitlines() if "Error: " in line] or ["it ended"]
            more.append(lines[0])
            said.write_text("".join(json.dumps(line) + "\n" for line in more))
        results = more
    return results


def step(options):
    """On each rank: trains one step of each config; rank 0 notes it."""
    import datetime

    import torch

    import deepspeed
    configs = json.loads(options.step.read_text())[options.start:]
    # Collectives are gloo's: DeepSpeed would compile an operator of its own for them.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    torch.set_num_threads(1)
    deepspeed.init_distributed("gloo", auto_mpi_discovery=False, timeout=datetime.timedelta(seconds=60))
    for config in configs:
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Embedding(128, 64), torch.nn.Linear(64, 64),
                                    torch.nn.LayerNorm(64), torch.nn.Linear(64, 128))
        engine, *_ = deepspeed.initialize(model=model, config=config,
                                          model_parameters=list(model.parameters()))
        for _ in range(engine.gradient_accumulation_steps()):
            tokens = torch.randint(128, (engine.train_micro_batch_size_per_gpu(), 16))
            loss = torch.nn.functional.cross_entropy(engine(tokens).float().flatten(0, 1), tokens.flatten())
            engine.backward(loss)
            engine.step()
        refusal = None if engine.global_steps == 1 and bool(torch.isfinite(loss)) else \
            f"{engine.global_steps} steps, loss {float(loss)}"
        engine.destroy()
        torch.distributed.barrier()
        if torch.distributed.get_rank() == 0:
            with options.said.open("a") as file:
                file.write(json.dumps(refusal) + "\n")
    sys.stdout.flush()
    os._exit(0)  # threads of DeepSpeed's would be waited for


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="build/release/dstune-mpi")
    parser.add_argument("--members", type=int, default=200)
    parser.add_argument("--train", type=int, default=0, help="so many of them train one step")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--step", type=pathlib.Path, help=argparse.SUPPRESS)
    parser.add_argument("--from", dest="start", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--said", type=pathlib.Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.step:
        return step(options)
    engine = check_deepspeed_engine.Engine(4)
    members, spaces, refused = draw_members(options, engine)
    print(f"DeepSpeed {engine.version}: {len(members)} members of {spaces - refused.total()} spaces; "
          f"{refused.total()} more spaces are refused:")
    for words, count in refused.most_common():
        print(f"  {count} {words}")
    bad = [(config, words) for ranks, config in members
           if (words := engine.refusal_of_config(config, ranks))]
    print(f"{len(members)} configs loaded, {len(bad)} refused", flush=True)
    able = [config for ranks, config in members if ranks == 2 and runs_on_gloo(config)][:options.train]
    if options.train:
        with tempfile.TemporaryDirectory() as folder:
            said = train_all(able, folder)
        failed = [(config, words) for config, words in zip(able, said) if words]
        print(f"{len(able)} configs trained one step on two ranks, {len(failed)} failed")
        bad += failed
    for config, words in bad:
        print(f"{words}\n  {json.dumps(config)}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
