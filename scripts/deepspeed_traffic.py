#!/usr/bin/env python3
"""Writes the collectives of DeepSpeed's optimizer steps, as test vectors.

Needs DeepSpeed 0.19.6 with PyTorch and Hugging Face transformers; no GPU. It runs itself on two
ranks, all cases one after the other:

    python3 scripts/deepspeed_traffic.py mpi_tests/unit/plan/data/deepspeed_traffic.json

Not among the cases: contiguous_gradients false at stages 1 and 2, where DeepSpeed 0.19.6 finds no
gradients to reduce without a GPU (it looks for tensors of type "torch.cpu.FloatTensor", which
PyTorch calls "torch.FloatTensor").
"""

import json
import os
import subprocess
import sys

MODEL = {"hidden_size": 10, "num_layers": 3, "intermediate_size": 37, "vocab_size": 101,
         "max_positions": 19}
RANKS = 2
PLAIN = {"stage": 3, "stage3_param_persistence_threshold": 0, "stage3_prefetch_bucket_size": 0,
         "stage3_max_reuse_distance": 0, "reduce_bucket_size": 1000}
BF16 = {"bf16": {"enabled": True}}


def cases():
    def case(name, zero, accumulation=1, **rest):
        return {"name": name, "config": dict(
            rest, gradient_accumulation_steps=accumulation, zero_optimization=zero)}

    yield case("stage 0", {"stage": 0})
    yield case("stage 0, bf16", {"stage": 0}, 2, **BF16)
    for stage in (1, 2):
        base = {"stage": stage, "reduce_bucket_size": 1000}
        yield case(f"stage {stage}", base, 2)
        yield case(f"stage {stage}, overlap", dict(base, overlap_comm=True), 2)
        yield case(f"stage {stage}, owners", dict(base, use_multi_rank_bucket_allreduce=False), 2)
        yield case(f"stage {stage}, no scatter", dict(base, reduce_scatter=False), 2)
        yield case(f"stage {stage}, round robin", dict(base, round_robin_gradients=True))
        yield case(f"stage {stage}, bf16 as fp32", base, 2, **BF16, communication_data_type="fp32")
        yield case(f"stage {stage}, fp32 as bf16", base, 2, communication_data_type="bf16")
        yield case(f"stage {stage}, fp32 as bf16, no scatter", dict(base, reduce_scatter=False), 2,
                   communication_data_type="bf16")
        yield case(f"stage {stage}, small buckets", dict(base, reduce_bucket_size=100))
    yield case("stage 3", PLAIN, 2)
    yield case("stage 3, no scatter", dict(PLAIN, reduce_scatter=False))
    yield case("stage 3, not contiguous", dict(PLAIN, contiguous_gradients=False))
    yield case("stage 3, not contiguous, no scatter",
               dict(PLAIN, contiguous_gradients=False, reduce_scatter=False))
    yield case("stage 3, small buckets", dict(PLAIN, reduce_bucket_size=100))
    yield case("stage 3, small buckets, no scatter",
               dict(PLAIN, reduce_bucket_size=100, reduce_scatter=False))
    yield case("stage 3, bf16 as fp32", PLAIN, **BF16, communication_data_type="fp32")
    yield case("stage 3, fp32 as bf16", PLAIN, communication_data_type="bf16")
    yield case("stage 3, all-reduce",
               dict(PLAIN, stage3_use_all_reduce_for_fetch_params=True,
                    stage3_param_persistence_threshold=30))
    yield case("stage 3, all-reduce, sequential",
               dict(PLAIN, stage3_use_all_reduce_for_fetch_params=True,
                    stage3_allgather_sequential=True))


def record():
    """Wraps the collectives of DeepSpeed's backend; returns the list that they fill: kind, elements
    of the whole buffer, element type. What is a few numbers long is bookkeeping and left out."""
    from deepspeed.comm.torch import TorchBackend
    events = []

    def wrap(name, argument, keyword):
        original = getattr(TorchBackend, name)

        def wrapped(self, *args, **kwargs):
            tensor = args[argument] if len(args) > argument else kwargs[keyword]
            if tensor.numel() > 2:
                events.append([name, tensor.numel(), str(tensor.dtype)[len("torch."):]])
            return original(self, *args, **kwargs)

        setattr(TorchBackend, name, wrapped)

    wrap("all_reduce", 0, "tensor")
    wrap("reduce", 0, "tensor")
    wrap("all_gather_into_tensor", 0, "output_tensor")
    wrap("reduce_scatter_tensor", 1, "input_tensor")
    return events


def run_case(case, events):
    import deepspeed
    import torch
    from deepspeed.runtime.zero.partition_parameters import Init
    from transformers import GPT2Config, GPT2LMHeadModel
    Init.param_id = Init.num_persisted_parameters = Init.num_persisted_elements = 0
    Init.apply_param_persistence = False
    model = GPT2LMHeadModel(GPT2Config(
        n_layer=MODEL["num_layers"], n_embd=MODEL["hidden_size"], n_head=2,
        vocab_size=MODEL["vocab_size"], n_positions=MODEL["max_positions"],
        n_inner=MODEL["intermediate_size"], use_cache=False, attn_pdrop=0, embd_pdrop=0,
        resid_pdrop=0))
    config = dict(case["config"], train_micro_batch_size_per_gpu=2,
                  zero_allow_untested_optimizer=True, zero_force_ds_cpu_optimizer=False)
    engine = deepspeed.initialize(model=model, config=config,
                                  optimizer=torch.optim.AdamW(model.parameters()))[0]
    tokens = torch.randint(0, MODEL["vocab_size"], (2, 7))
    for _ in range(3):  # the first step of stage 3 is unlike the others
        micro_steps = []
        for _ in range(config["gradient_accumulation_steps"]):
            events.clear()
            engine.backward(engine(input_ids=tokens, labels=tokens).loss)
            micro_steps.append(list(events))
            events.clear()
            engine.step()
    engine.destroy()
    return dict(case, micro_steps=micro_steps, update=list(events))


def run_all(output):
    import deepspeed
    import torch
    from deepspeed.runtime.zero.linear import zero3_linear_wrap
    torch.Tensor.record_stream = lambda *_: None  # meant for GPUs
    torch.nn.functional.linear = zero3_linear_wrap  # as deepspeed.zero.Init does
    deepspeed.init_distributed("gloo")
    events = record()
    traced = [run_case(case, events) for case in cases()]
    if torch.distributed.get_rank() == 0:
        write(traced, output)


def write(traced, output):
    with open(output, "w", encoding="utf-8") as file:
        file.write('{"model": ' + json.dumps(MODEL) + f', "ranks": {RANKS}, "cases": [\n')
        file.write(",\n".join(json.dumps(case, separators=(",", ":")) for case in traced))
        file.write("\n]}\n")


def main():
    output = os.path.abspath(sys.argv[1])
    if "LOCAL_RANK" in os.environ:
        run_all(output)
        return
    subprocess.run([sys.executable, "-m", "torch.distributed.run", "--standalone",
                    "--nproc_per_node", str(RANKS), __file__, output],
                   check=True, env=dict(os.environ, DS_ACCELERATOR="cpu", OMP_NUM_THREADS="1"))


if __name__ == "__main__":
    main()
