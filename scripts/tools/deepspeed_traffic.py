#!/usr/bin/env python3
"""Writes the collectives of DeepSpeed's optimizer steps, as test vectors.

Needs DeepSpeed 0.19.6 with PyTorch and Hugging Face transformers; no GPU. It runs itself on two
ranks, then on four that believe to be on two nodes, all cases of each one after the other:

    python3 scripts/tools/deepspeed_traffic.py mpi_tests/unit/plan/data/deepspeed_traffic.json

MiCS is recorded as it is meant. DeepSpeed 0.19.6 hangs in it where there are several copies of the
states: it reduces gradients over all ranks, whose shards are not those of the parameters, and some
then skip the average over the copies. gloo does not take several gathers at once; they are made
one by one, and averaged over the copies is one buffer.

DeepSpeed's kernels that quantise for ZeRO++ need a GPU; PythonQuantizer stands in for them.

Not among the cases: contiguous_gradients false at stages 1 and 2, where DeepSpeed 0.19.6 finds no
gradients to reduce without a GPU (it looks for tensors of type "torch.cpu.FloatTensor", which
PyTorch calls "torch.FloatTensor").
"""

import json
import os
import subprocess
import sys
import tempfile

MODEL = {"hidden_size": 10, "num_layers": 3, "intermediate_size": 37, "vocab_size": 101,
         "max_positions": 19}
# Its parts are what ZeRO++ can quantise, on four ranks.
EVEN_MODEL = dict(MODEL, hidden_size=32, intermediate_size=96, vocab_size=104, max_positions=24)
RANKS_OF_NODE = 2
PLAIN = {"stage": 3, "stage3_param_persistence_threshold": 0, "stage3_prefetch_bucket_size": 0,
         "stage3_max_reuse_distance": 0, "reduce_bucket_size": 1000}
BF16 = {"bf16": {"enabled": True}}


def case(name, zero, accumulation=1, **rest):
    return {"name": name, "config": dict(
        rest, gradient_accumulation_steps=accumulation, zero_optimization=zero)}


def cases_on_two_ranks():
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
    yield case("quantized gradients, one node", dict(PLAIN, zero_quantized_gradients=True))


def cases_on_four_ranks():
    gathers = dict(PLAIN, stage3_param_persistence_threshold=30, stage3_prefetch_bucket_size=800,
                   stage3_max_reuse_distance=1500)
    yield case("hpZ", dict(PLAIN, zero_hpz_partition_size=2), 3)
    yield case("hpZ, gathered ahead", dict(gathers, zero_hpz_partition_size=2), 2)
    yield case("hpZ, all-reduce",
               dict(PLAIN, zero_hpz_partition_size=2, stage3_use_all_reduce_for_fetch_params=True))
    yield case("hpZ, one by one",
               dict(PLAIN, zero_hpz_partition_size=4, stage3_allgather_sequential=True))
    yield case("MiCS", dict(PLAIN, mics_shard_size=2), 3)
    yield case("MiCS, gathered ahead", dict(gathers, mics_shard_size=2), 2)
    yield case("MiCS, no scatter", dict(PLAIN, mics_shard_size=2, reduce_scatter=False))
    yield case("MiCS, one copy", dict(PLAIN, mics_shard_size=4))
    yield case("MiCS, nodes", dict(PLAIN, mics_shard_size=4, mics_hierarchical_params_gather=True))
    for name, zero, accumulation, rest in quantized():
        yield dict(case(name, dict(PLAIN, **zero), accumulation, **rest), model=EVEN_MODEL)


def quantized():
    weights = {"zero_quantized_weights": True}
    gathers = dict(weights, stage3_param_persistence_threshold=40,
                   stage3_prefetch_bucket_size=5000, stage3_max_reuse_distance=9000)
    yield "quantized weights", weights, 2, {}
    yield "quantized weights, gathered ahead", gathers, 2, BF16
    yield "quantized weights, one by one", dict(gathers, stage3_allgather_sequential=True), 1, {}
    yield ("quantized weights, all-reduce",
           dict(gathers, stage3_use_all_reduce_for_fetch_params=True), 1, {})
    yield "quantized weights, hpZ", dict(weights, zero_hpz_partition_size=2), 3, {}
    halves = {"communication_data_type": "fp16"}
    gradients = {"zero_quantized_gradients": True}
    yield "quantized gradients", dict(gradients, reduce_bucket_size=4000), 2, halves
    yield "quantized gradients, alone", dict(gradients, reduce_bucket_size=100), 1, halves
    yield ("quantized gradients, not contiguous",
           dict(gradients, reduce_bucket_size=4000, contiguous_gradients=False), 1, halves)
    yield ("quantized, both", dict(gathers, zero_quantized_gradients=True), 2,
           dict(BF16, **halves))


def record():
    """Wraps the collectives of DeepSpeed's backend; returns the list that they fill: kind, elements
    of the whole buffer, element type, and the ranks where these are not all. What is a few numbers
    long is bookkeeping and left out."""
    import torch.distributed as distributed
    from deepspeed.comm.torch import TorchBackend
    events = []

    def write(name, tensor, group):
        ranks = distributed.get_process_group_ranks(group or distributed.group.WORLD)
        if tensor.numel() > 2 or name != "all_reduce":
            event = [name, tensor.numel(), str(tensor.dtype)[len("torch."):]]
            events.append(event + ([] if len(ranks) == distributed.get_world_size() else [ranks]))

    def wrap(name, argument, keyword, group_argument):
        original = getattr(TorchBackend, name)

        def wrapped(self, *args, **kwargs):
            tensor = args[argument] if len(args) > argument else kwargs[keyword]
            group = args[group_argument] if len(args) > group_argument else kwargs.get("group")
            write(name, tensor, group)
            return original(self, *args, **kwargs)

        setattr(TorchBackend, name, wrapped)

    wrap("all_reduce", 0, "tensor", 2)
    wrap("reduce", 0, "tensor", 3)
    wrap("all_gather_into_tensor", 0, "output_tensor", 2)
    wrap("reduce_scatter_tensor", 1, "input_tensor", 3)
    wrap("all_to_all_single", 1, "input", 4)
    return events


def mend_mics():
    import deepspeed.comm
    from deepspeed.comm.torch import TorchBackend
    from deepspeed.runtime.zero.mics import MiCS_Init
    from deepspeed.runtime.zero.partition_parameters import Init
    convert = Init._convert_to_deepspeed_param

    def convert_in_block(self, param):
        if isinstance(self, MiCS_Init):
            param.ds_zero_partition_process_group = self.mics_comm_groups.param_shard_group
        convert(self, param)

    class Done:
        def wait(self):
            pass

    def gather_one_by_one(self, output_tensors, input_tensors, group=None, async_op=False):
        for output, part in zip(output_tensors, input_tensors):
            self.all_gather_into_tensor(output, part, group=group)
        return Done()

    Init._convert_to_deepspeed_param = convert_in_block
    TorchBackend.all_gather_coalesced = gather_one_by_one
    deepspeed.comm.has_all_reduce_coalesced = lambda: False


class PythonQuantizer:
    """What DeepSpeed's kernels do, with the same numbers of elements and types of their results:
    gloo wants scales in one dimension."""
    Symmetric = 0

    @staticmethod
    def quantize(values, groups, bits, _):
        import torch
        runs = values.reshape(groups, -1).float()
        largest = runs.abs().amax(1, keepdim=True)
        scales = torch.where(largest == 0, 1.0, 2 * largest / 2**bits)
        codes = (runs / scales).round().clamp(-2**(bits - 1), 2**(bits - 1) - 1).to(torch.int8)
        if bits == 4:
            codes = codes.reshape(-1, 2)
            codes = (codes[:, 0] & 15) | (codes[:, 1] << 4)
        return codes.reshape(*values.shape[:-1], -1), scales.reshape(-1)

    @staticmethod
    def dequantize(codes, scales, groups, bits, _):
        import torch
        if bits == 4:
            low = (codes & 15).to(torch.int8)
            both = torch.stack((torch.where(low > 7, low - 16, low), codes >> 4), -1)
            codes = both.reshape(*codes.shape[:-1], -1)
        runs = codes.reshape(groups, -1).float() * scales.reshape(groups, 1)
        return runs.reshape(codes.shape).half()

    @classmethod
    def swizzle_quant(cls, values, groups, bits, kind, _, nodes, ranks):
        swapped = values.reshape(nodes, ranks, -1).transpose(0, 1).reshape(-1)
        return cls.quantize(swapped, groups, bits, kind)

    @classmethod
    def quantized_reduction(cls, codes, scales, groups, out_groups, bits, kind, ranks):
        values = cls.dequantize(codes, scales, groups, bits, kind)
        return cls.quantize(values.reshape(ranks, -1).sum(0), out_groups, bits, kind)


def mend_quantization(quantizer=PythonQuantizer):
    import deepspeed.runtime.comm.coalesced_collectives as collectives
    from deepspeed.runtime.zero.partition_parameters import CUDAQuantizer
    collectives.quantizer_module = CUDAQuantizer.quantizer_cuda_module = quantizer


def run_case(case, events):
    import deepspeed
    import torch
    from deepspeed.runtime.zero.partition_parameters import Init
    from deepspeed.utils import groups
    from transformers import GPT2Config, GPT2LMHeadModel
    Init.param_id = Init.num_persisted_parameters = Init.num_persisted_elements = 0
    Init.apply_param_persistence = False
    groups._ZERO_PARAM_INTRA_PARALLEL_GROUP = None
    sizes = case.get("model", MODEL)
    model = GPT2LMHeadModel(GPT2Config(
        n_layer=sizes["num_layers"], n_embd=sizes["hidden_size"], n_head=2,
        vocab_size=sizes["vocab_size"], n_positions=sizes["max_positions"],
        n_inner=sizes["intermediate_size"], use_cache=False, attn_pdrop=0, embd_pdrop=0,
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
    mend_mics()
    mend_quantization()
    ranks = torch.distributed.get_world_size()
    cases = cases_on_two_ranks() if ranks == 2 else cases_on_four_ranks()
    traced = [run_case(dict(each, ranks=ranks), events) for each in cases]
    if torch.distributed.get_rank() == 0:
        with open(output, "a", encoding="utf-8") as file:
            file.writelines(json.dumps(each, separators=(",", ":")) + "\n" for each in traced)


def write(lines, output):
    with open(output, "w", encoding="utf-8") as file:
        file.write('{"model": ' + json.dumps(MODEL) + f', "ranks_per_node": {RANKS_OF_NODE}')
        file.write(', "cases": [\n' + ",\n".join(lines) + "\n]}\n")


def main():
    output = os.path.abspath(sys.argv[1])
    if "LOCAL_RANK" in os.environ:
        run_all(output)
        return
    with tempfile.TemporaryDirectory() as folder:
        lines = os.path.join(folder, "cases")
        for ranks in (2, 4):
            subprocess.run([sys.executable, "-m", "torch.distributed.run", "--standalone",
                            "--nproc_per_node", str(ranks), __file__, lines], check=True,
                           env=dict(os.environ, DS_ACCELERATOR="cpu", OMP_NUM_THREADS="1",
                                    LOCAL_SIZE=str(RANKS_OF_NODE)))
        with open(lines, encoding="utf-8") as file:
            write(file.read().splitlines(), output)


if __name__ == "__main__":
    main()
