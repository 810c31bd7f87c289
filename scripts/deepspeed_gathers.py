#!/usr/bin/env python3
"""Writes what DeepSpeed's stage 3 gathers and releases at each module, as test vectors.

Needs DeepSpeed 0.19.6 with PyTorch and Hugging Face transformers; no GPU. It runs itself on two
ranks, once for each case that the file lacks:

    python3 scripts/deepspeed_gathers.py mpi_tests/unit/plan/data/deepspeed_gathers.json
"""

import json
import os
import subprocess
import sys
import tempfile

MODEL = {"hidden_size": 16, "num_layers": 3, "intermediate_size": 36, "vocab_size": 101,
         "max_positions": 19}
BASE = {"stage3_param_persistence_threshold": 40, "stage3_prefetch_bucket_size": 1000,
        "stage3_max_live_parameters": 3000, "stage3_max_reuse_distance": 1000}
PLAIN = {"stage3_param_persistence_threshold": 0, "stage3_prefetch_bucket_size": 500,
         "stage3_max_live_parameters": 100000, "stage3_max_reuse_distance": 0}
WIDE = {"stage3_prefetch_bucket_size": 5000, "stage3_max_live_parameters": 10**9,
        "stage3_max_reuse_distance": 10**9, "stage3_param_persistence_threshold": 100}
# Blocks are gathered as a whole.
LEAVES = 270


def cases():
    for family in ("gpt2", "llama"):
        for name, zero in (("base", BASE), ("plain", PLAIN), ("wide", WIDE)):
            yield {"family": family, "name": name, "zero": zero, "accumulation": 3}
        yield {"family": family, "name": "recompute", "zero": BASE, "accumulation": 3, "recompute": True}
        yield {"family": family, "name": "recompute_plain", "zero": PLAIN, "accumulation": 3,
               "recompute": True}
        yield {"family": family, "name": "few_persistent", "accumulation": 1,
               "zero": dict(WIDE, stage3_model_persistence_threshold=150)}
    # LLaMA's linear layers in leaves fail in DeepSpeed 0.19.6 without a GPU.
    yield {"family": "gpt2", "name": "leaves", "accumulation": 3,
           "zero": dict(BASE, stage3_module_granularity_threshold=LEAVES)}
    yield {"family": "gpt2", "name": "no_dropout", "zero": BASE, "accumulation": 1, "recompute": True,
           "dropout": 0.0}


def build(case):
    from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM
    if case["family"] == "gpt2":
        dropout = case.get("dropout", 0.1)
        model = GPT2LMHeadModel(GPT2Config(
            n_layer=MODEL["num_layers"], n_embd=MODEL["hidden_size"], n_head=2,
            vocab_size=MODEL["vocab_size"], n_positions=MODEL["max_positions"],
            n_inner=MODEL["intermediate_size"], use_cache=False, attn_pdrop=dropout,
            embd_pdrop=dropout, resid_pdrop=dropout))
    else:
        model = LlamaForCausalLM(LlamaConfig(
            num_hidden_layers=MODEL["num_layers"], hidden_size=MODEL["hidden_size"],
            num_attention_heads=4, num_key_value_heads=2, head_dim=6,
            intermediate_size=MODEL["intermediate_size"], vocab_size=MODEL["vocab_size"],
            max_position_embeddings=MODEL["max_positions"], tie_word_embeddings=False,
            use_cache=False))
    if case.get("recompute"):
        model.gradient_checkpointing_enable()
    return model


def record(coordinator_module, names):
    """Wraps the coordinator's methods; returns the list of micro-steps that they fill."""
    coordinator = coordinator_module.PartitionedParameterCoordinator
    status = coordinator_module.ZeroParamStatus
    private = "_PartitionedParameterCoordinator__"
    micro_steps = []

    def wrap(name, note):
        original = getattr(coordinator, name)

        def wrapped(self, *args, **kwargs):
            note(*args)
            return original(self, *args, **kwargs)

        setattr(coordinator, name, wrapped)

    def gather(params, *_):
        params = [p for p in params if p.ds_status == status.NOT_AVAILABLE]
        micro_steps[-1].append(["gather"] + [names[id(p)] for p in sorted(params, key=lambda p: p.ds_id)])

    def release(param, *_):
        if micro_steps and param.ds_status == status.AVAILABLE and not param.ds_active_sub_modules:
            micro_steps[-1].append(["release", names[id(param)]])

    wrap(private + "all_gather_params_", gather)
    wrap(private + "release_param", release)
    wrap("reset_step", lambda *_: micro_steps.append([]))
    return micro_steps


def run_case(case, output):
    import deepspeed
    import torch
    from deepspeed.runtime.zero import partitioned_param_coordinator
    from deepspeed.runtime.zero.linear import zero3_linear_wrap
    torch.Tensor.record_stream = lambda *_: None  # meant for GPUs
    torch.nn.functional.linear = zero3_linear_wrap  # as deepspeed.zero.Init does
    deepspeed.init_distributed("gloo")
    model = build(case)
    names = {id(p): name for name, p in model.named_parameters()}
    micro_steps = record(partitioned_param_coordinator, names)
    config = {"train_micro_batch_size_per_gpu": 2,
              "gradient_accumulation_steps": case["accumulation"],
              "zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False,
              "zero_optimization": dict(case["zero"], stage=3)}
    engine = deepspeed.initialize(model=model, config=config,
                                  optimizer=torch.optim.AdamW(model.parameters()))[0]
    tokens = torch.randint(0, MODEL["vocab_size"], (2, 7))
    traced = []
    for _ in range(2 * case["accumulation"]):
        engine.backward(engine(input_ids=tokens, labels=tokens).loss)
        traced.append(list(micro_steps[-1]))  # without what the update releases
        engine.step()
    if torch.distributed.get_rank() == 0:
        with open(output, "w", encoding="utf-8") as file:
            json.dump(traced, file)


def main():
    if len(sys.argv) > 2:
        run_case(json.loads(sys.argv[1]), sys.argv[2])
        return
    path = sys.argv[1]
    vectors = {"model": MODEL, "cases": []}
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            vectors = json.load(file)
    there = [(case["family"], case["name"]) for case in vectors["cases"]]
    with tempfile.TemporaryDirectory() as folder:
        for number, case in enumerate(cases()):
            if (case["family"], case["name"]) in there:
                continue
            output = os.path.join(folder, f"{number}.json")
            subprocess.run([sys.executable, "-m", "torch.distributed.run", "--standalone",
                            "--nproc_per_node", "2", __file__, json.dumps(case), output],
                           check=True, env=dict(os.environ, DS_ACCELERATOR="cpu"))
            with open(output, encoding="utf-8") as file:
                vectors["cases"].append(dict(case, micro_steps=json.load(file)))
            with open(path, "w", encoding="utf-8") as file:
                json.dump(vectors, file, separators=(",", ":"))
                file.write("\n")


if __name__ == "__main__":
    main()
