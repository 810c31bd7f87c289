#!/usr/bin/env python3
"""Writes what DeepSpeed's stage 3 gathers and releases at each module, as test vectors, and what it
reads from a disk where parameters are offloaded to one.

Needs DeepSpeed 0.19.6 with PyTorch and Hugging Face transformers; no GPU, and no libaio: files are
read and written here. It runs itself on two ranks, once for each case that the file lacks:

    python3 scripts/tools/deepspeed_gathers.py mpi_tests/unit/plan/data/deepspeed_gathers.json
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
# Shards of its matrices are large enough for a disk.
LARGE = dict(MODEL, hidden_size=64, num_layers=2, intermediate_size=16384, vocab_size=16384)
SWAPPED = {"stage3_param_persistence_threshold": 100, "stage3_prefetch_bucket_size": 500_000,
           "stage3_max_live_parameters": 10**9, "stage3_max_reuse_distance": 0}
DISK = {"parameter_buffer_count": 5, "parameter_buffer_size": 1_100_000, "max_in_cpu": 0}


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
    blocks = {"classes": ["GPT2Block", "LlamaDecoderLayer"]}
    parts = {"names": ["transformer.h.1.attn"], "name_suffixes": ["mlp"]}
    for family in ("gpt2", "llama"):
        yield {"family": family, "name": "named_blocks", "accumulation": 3,
               "zero": dict(BASE, leaf_module=blocks)}
        # So little at a time that it shows in which order a block's parameters come.
        yield {"family": family, "name": "named_blocks_in_parts", "accumulation": 2,
               "zero": dict(PLAIN, leaf_module=blocks)}
        yield {"family": family, "name": "named_parts", "accumulation": 3,
               "zero": dict(PLAIN, leaf_module=parts)}
    yield {"family": "gpt2", "name": "named_blocks_recompute", "accumulation": 3, "recompute": True,
           "zero": dict(BASE, leaf_module=blocks)}
    yield {"family": "gpt2", "name": "no_dropout", "zero": BASE, "accumulation": 1, "recompute": True,
           "dropout": 0.0}
    disk = {"model": LARGE, "accumulation": 2, "zero": SWAPPED, "disk": DISK}
    yield dict(disk, family="gpt2", name="disk")
    yield dict(disk, family="gpt2", name="disk_ahead", disk=dict(DISK, parameter_buffer_count=7),
               zero=dict(SWAPPED, stage3_prefetch_bucket_size=2_500_000))
    yield dict(disk, family="gpt2", name="disk_no_prefetch", disk=dict(DISK, parameter_buffer_count=2),
               zero=dict(SWAPPED, stage3_prefetch_bucket_size=0))
    yield dict(disk, family="gpt2", name="disk_in_part", disk=dict(DISK, max_in_cpu=1_200_000),
               zero=dict(SWAPPED, sub_group_size=300_000))
    yield dict(disk, family="gpt2", name="disk_reuse", disk=dict(DISK, parameter_buffer_count=12),
               zero=dict(SWAPPED, stage3_max_reuse_distance=2_000_000))
    yield dict(disk, family="gpt2", name="disk_few_buffers", disk=dict(DISK, parameter_buffer_count=2),
               zero=dict(SWAPPED, stage3_max_reuse_distance=10**9))
    yield dict(disk, family="llama", name="disk")


class Files:
    """Stands for DeepSpeed's module of asynchronous transfers, whose memory is page-locked."""

    def __init__(self):
        self.locked = []
        self.aio_handle = lambda **_: Transfers(self)


class Transfers:
    def __init__(self, files):
        self.files = files
        self.pending = 0

    def async_pread(self, buffer, path, _):
        import torch
        stored = torch.load(path)
        buffer[:stored.numel()] = stored[:buffer.numel()]
        self.pending += 1
        return 0

    def async_pwrite(self, buffer, path, _):
        import torch
        torch.save(buffer.clone(), path)
        self.pending += 1
        return 0

    def wait(self):
        done, self.pending = self.pending, 0
        return done

    def new_cpu_locked_tensor(self, elements, example):
        import torch
        self.files.locked.append(torch.zeros(elements, dtype=example.dtype))
        return self.files.locked[-1]

    def is_pinned(self, tensor):
        return any(0 <= tensor.data_ptr() - memory.data_ptr() < memory.nbytes
                   for memory in self.files.locked)

    def free_cpu_locked_tensor(self, _):
        return True


def build(case):
    sizes = case.get("model", MODEL)
    from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM
    if case["family"] == "gpt2":
        dropout = case.get("dropout", 0.1)
        model = GPT2LMHeadModel(GPT2Config(
            n_layer=sizes["num_layers"], n_embd=sizes["hidden_size"], n_head=2,
            vocab_size=sizes["vocab_size"], n_positions=sizes["max_positions"],
            n_inner=sizes["intermediate_size"], use_cache=False, attn_pdrop=dropout,
            embd_pdrop=dropout, resid_pdrop=dropout))
    else:
        model = LlamaForCausalLM(LlamaConfig(
            num_hidden_layers=sizes["num_layers"], hidden_size=sizes["hidden_size"],
            num_attention_heads=4, num_key_value_heads=2, head_dim=6,
            intermediate_size=sizes["intermediate_size"], vocab_size=sizes["vocab_size"],
            max_position_embeddings=sizes["max_positions"], tie_word_embeddings=False,
            use_cache=False))
    if case.get("recompute"):
        model.gradient_checkpointing_enable()
    return model


def record(coordinator_module, swapper, names):
    """Wraps the methods of coordinator and swapper; returns the list of micro-steps they fill."""
    coordinator = coordinator_module.PartitionedParameterCoordinator
    status = coordinator_module.ZeroParamStatus
    private = "_PartitionedParameterCoordinator__"
    micro_steps = []

    def wrap(name, note, kind=coordinator):
        original = getattr(kind, name)

        def wrapped(self, *args, **kwargs):
            note(*args, **kwargs)
            return original(self, *args, **kwargs)

        setattr(kind, name, wrapped)

    def gather(params, *_, **__):
        params = [p for p in params if p.ds_status == status.NOT_AVAILABLE]
        micro_steps[-1].append(["gather"] + [names[id(p)] for p in sorted(params, key=lambda p: p.ds_id)])

    def read(params, async_op=True, **_):
        if micro_steps:
            micro_steps[-1].append(["read_ahead" if async_op else "read"] + [names[id(p)] for p in params])

    def release(param, *_, **__):
        if micro_steps and param.ds_status == status.AVAILABLE and not param.ds_active_sub_modules:
            micro_steps[-1].append(["release", names[id(param)]])

    wrap(private + "all_gather_params_", gather)
    wrap(private + "release_param", release)
    wrap("reset_step", lambda *_: micro_steps.append([]))
    wrap("swap_in", read, swapper)
    return micro_steps


def run_case(case, output):
    import deepspeed
    import torch
    from deepspeed.runtime.zero import partitioned_param_coordinator
    from deepspeed.ops.op_builder import AsyncIOBuilder
    from deepspeed.runtime.swap_tensor.partitioned_param_swapper import AsyncPartitionedParameterSwapper
    from deepspeed.runtime.zero.linear import zero3_linear_wrap
    files = Files()
    AsyncIOBuilder.load = lambda *_, **__: files
    torch.Tensor.record_stream = lambda *_: None  # meant for GPUs
    torch.nn.functional.linear = zero3_linear_wrap  # as deepspeed.zero.Init does
    deepspeed.init_distributed("gloo")
    model = build(case)
    names = {id(p): name for name, p in model.named_parameters()}
    micro_steps = record(partitioned_param_coordinator, AsyncPartitionedParameterSwapper, names)
    config = {"train_micro_batch_size_per_gpu": 2,
              "gradient_accumulation_steps": case["accumulation"],
              "zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False,
              "zero_optimization": dict(case["zero"], stage=3)}
    if "disk" in case:
        config["zero_optimization"]["offload_param"] = {
            "device": "nvme", "nvme_path": os.path.dirname(output),
            "buffer_count": case["disk"]["parameter_buffer_count"],
            "buffer_size": case["disk"]["parameter_buffer_size"],
            "max_in_cpu": case["disk"]["max_in_cpu"]}
    engine = deepspeed.initialize(model=model, config=config,
                                  optimizer=torch.optim.AdamW(model.parameters()))[0]
    tokens = torch.randint(0, case.get("model", MODEL)["vocab_size"], (2, 7))
    traced = []
    try:
        for _ in range(2 * case["accumulation"]):
            engine.backward(engine(input_ids=tokens, labels=tokens).loss)
            traced.append(list(micro_steps[-1]))  # without what the update releases
            engine.step()
    except AssertionError as error:  # of a lack of buffers
        traced.append([["failed", str(error)]])
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
