#!/usr/bin/env python3
"""Measures what a training of Hugging Face models holds in memory, tensor by tensor.

  check_target_memory.py training  --out FILE   forward and backward, without DeepSpeed
  check_target_memory.py deberta   --out FILE   the same of DeBERTa XXL, which is not predicted
  check_target_memory.py deepspeed --out FILE   whole steps under DeepSpeed on the ranks there are,
                                                two or four (RANK, WORLD_SIZE, MASTER_ADDR,
                                                MASTER_PORT; four with LOCAL_SIZE=2: two nodes)

Needs PyTorch and transformers, the last part DeepSpeed with gloo and peft, too; no GPU. The file is
JSON; a unit test compares it with our formula (mpi_tests/unit/plan/data/target_memory.json).

training: tensors are fake (they have shapes and lifetimes and no content), so that models of any
size can be followed. Every storage that an operation makes is counted from then until it is freed.
What a GPU does otherwise than the CPU is called as on the GPU: dropout keeps a mask of bytes, sdpa
and flash keep q, k, v, the result and the log-sum-exp (PyTorch's own flash operator). What kernels
allocate inside is not seen. The calls are then played through a model of PyTorch's caching
allocator: what it reserves where there is room, and the least memory in which they fit.

deepspeed: tensors are real and the models small. Adam's arithmetic is left out, its states are not.
A copy that gloo makes of what it reduce-scatters is not counted: NCCL makes none. ZeRO++'s kernels
need a GPU: Python stands in for them, of which what it returns is counted and nothing else.
"""
import argparse
import gc
import json
import os
import sys
import weakref

sys.dont_write_bytecode = True  # nothing beside the scripts

import torch
import torch.nn.functional as functional
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

MIB = 1 << 20


class Tracker(TorchDispatchMode):
    """Bytes of live storages, and every allocation and release in order."""

    def __init__(self):
        super().__init__()
        self.known = {}
        self.events = []  # (number, bytes), number < 0: released
        self.now = self.count = 0
        self.peaks = {}
        self.phase = "start"
        self.is_muted = False

    def add(self, tensor):
        if tensor.device.type == "meta":
            return
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        if size == 0 or key in self.known:
            return
        self.count += 1
        self.known[key] = [self.count, size, weakref.ref(storage)]
        weakref.finalize(storage, self.release, key, self.count)
        self.now += size
        self.events.append((self.count, size))
        self.mark()

    def release(self, key, number):
        if key in self.known and self.known[key][0] == number:
            size = self.known.pop(key)[1]
            self.now -= size
            self.events.append((-number, size))

    def resized(self):
        """Stage 3 empties and fills storages in place."""
        for entry in list(self.known.values()):
            storage = entry[2]()
            if storage is not None and storage.nbytes() != entry[1]:
                self.now += storage.nbytes() - entry[1]
                entry[1] = storage.nbytes()

    def mark(self):
        self.peaks[self.phase] = max(self.now, self.peaks.get(self.phase, 0))

    def enter(self, phase):
        self.phase = phase
        self.resized()
        self.mark()

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        result = operator(*args, **(kwargs or {}))
        if "resize_" in str(operator):
            self.resized()
        if not self.is_muted and not is_copy_of_gloo():
            for leaf in tree_leaves(result):
                if isinstance(leaf, torch.Tensor):
                    self.add(leaf)
        self.mark()
        return result


def is_copy_of_gloo():
    """Is the operation that is tracked now inside DeepSpeed's reduce-scatter?"""
    frame = sys._getframe(2)
    while frame is not None and frame.f_code.co_name != "_torch_reduce_scatter_fn":
        frame = frame.f_back
    return frame is not None


class CachingAllocator:
    """PyTorch's (c10/cuda/CUDACachingAllocator.cpp) with its defaults, on one stream: sizes in
    multiples of 512 bytes; up to 1 MiB out of segments of 2 MiB, up to 10 MiB out of segments of
    20 MiB, above in segments in multiples of 2 MiB; best fit; a rest is split off if it is 512
    bytes (small) or more than 1 MiB (large); freed neighbours merge; before it gives up it returns
    all segments that are wholly free."""

    def __init__(self, limit=None):
        self.limit = limit
        self.free = {"small": set(), "large": set()}  # (size, segment, offset)
        self.segments = {}  # number → {offset: [size, is_free]}
        self.used = {}
        self.reserved = self.peak_reserved = self.count = 0

    def allocate(self, number, size):
        size = max(512, -(-size // 512) * 512)
        pool = "small" if size <= MIB else "large"
        fits = [block for block in self.free[pool] if block[0] >= size]
        if fits:
            block = min(fits)
            self.free[pool].remove(block)
        else:
            room = 2 * MIB if size <= MIB else 20 * MIB if size < 10 * MIB else \
                -(-size // (2 * MIB)) * 2 * MIB
            if self.limit is not None and self.reserved + room > self.limit:
                self.return_free_segments()
                if self.reserved + room > self.limit:
                    raise MemoryError
            self.count += 1
            segment = self.count
            self.segments[segment] = {0: [room, False]}
            self.reserved += room
            self.peak_reserved = max(self.peak_reserved, self.reserved)
            block = (room, segment, 0)
        room, segment, offset = block
        blocks = self.segments[segment]
        rest = room - size
        if rest >= 512 if pool == "small" else rest > MIB:
            blocks[offset + size] = [rest, True]
            self.free[pool].add((rest, segment, offset + size))
            room = size
        blocks[offset] = [room, False]
        self.used[number] = (pool, segment, offset)

    def return_free_segments(self):
        for segment, blocks in list(self.segments.items()):
            size, is_free = blocks[0]
            if is_free and len(blocks) == 1:
                for pool in self.free.values():
                    pool.discard((size, segment, 0))
                del self.segments[segment]
                self.reserved -= size

    def release(self, number):
        pool, segment, offset = self.used.pop(number)
        blocks = self.segments[segment]
        after = offset + blocks[offset][0]
        if after in blocks and blocks[after][1]:
            self.free[pool].remove((blocks[after][0], segment, after))
            blocks[offset][0] += blocks.pop(after)[0]
        for before, (size, is_free) in list(blocks.items()):
            if is_free and before + size == offset:
                self.free[pool].remove((size, segment, before))
                blocks[before][0] += blocks.pop(offset)[0]
                offset = before
                break
        blocks[offset][1] = True
        self.free[pool].add((blocks[offset][0], segment, offset))


def replay(events, limit=None):
    """The most bytes that were reserved; None where `limit` is too little."""
    allocator = CachingAllocator(limit)
    try:
        for number, size in events:
            if number > 0:
                allocator.allocate(number, size)
            else:
                allocator.release(-number)
    except MemoryError:
        return None
    return allocator.peak_reserved


def needed(events, peak, reserved):
    """The least memory in which the events fit, within 1/256 of their peak."""
    while reserved - peak > max(2 * MIB, peak >> 8):
        middle = (peak + reserved) // 2
        if replay(events, middle) is None:
            peak = middle
        else:
            reserved = middle
    return reserved


# training ------------------------------------------------------------------------------------------

# name: family, hidden, layers, heads, kv heads, MLP width, vocabulary, tied, dropout
MODELS = {
    "gpt2": ("gpt2", 768, 12, 12, 12, 3072, 50257, True, 0.1),
    "gpt2-medium": ("gpt2", 1024, 24, 16, 16, 4096, 50257, True, 0.1),
    "gpt2-xl": ("gpt2", 1600, 48, 25, 25, 6400, 50257, True, 0.1),
    "opt-350m-like": ("opt", 1024, 24, 16, 16, 4096, 50272, True, 0.1),
    "opt-1.3b": ("opt", 2048, 24, 32, 32, 8192, 50272, True, 0.1),
    "pythia-410m": ("gpt_neox", 1024, 24, 16, 16, 4096, 50304, False, 0.0),
    "pythia-1b": ("gpt_neox", 2048, 16, 8, 8, 8192, 50304, False, 0.0),
    "bert-base": ("bert", 768, 12, 12, 12, 3072, 30522, True, 0.1),
    "bert-large": ("bert", 1024, 24, 16, 16, 4096, 30522, True, 0.1),
    "llama-7b": ("llama", 4096, 32, 32, 32, 11008, 32000, False, 0.0),
    "llama-1b": ("llama", 2048, 16, 32, 8, 8192, 128256, True, 0.0),
    "mistral-7b": ("mistral", 4096, 32, 32, 8, 14336, 32000, False, 0.0),
    "phi3-mini": ("phi3", 3072, 32, 32, 32, 8192, 32064, False, 0.0),
    "qwen2-1.5b": ("qwen2", 1536, 28, 12, 2, 8960, 151936, True, 0.0),
    "qwen3-0.6b-like": ("qwen3", 1024, 28, 16, 8, 3072, 151936, True, 0.0),
    "olmo2-7b": ("olmo2", 4096, 32, 32, 32, 11008, 100352, False, 0.0),
    "smollm3-3b": ("smollm3", 2048, 36, 16, 4, 11008, 128256, True, 0.0),
    "granite-2b": ("granite", 2048, 40, 32, 8, 8192, 49155, True, 0.0),
    "gemma2-2b-like": ("gemma2", 2304, 26, 8, 4, 9216, 256000, True, 0.0),
    "gemma3-1b-like": ("gemma3_text", 1152, 26, 4, 1, 6912, 262144, True, 0.0),
    "falcon-7b": ("falcon", 4544, 32, 71, 1, 18176, 65024, True, 0.0),
    "falcon-40b-like": ("falcon", 4096, 16, 64, 8, 16384, 65024, True, 0.0),
}

# model, attention, precision, micro-batch, sequence, recompute, micro-steps
TRAININGS = [
    ("gpt2", "eager", "fp16", 8, 1024, "none", 1),
    ("gpt2", "sdpa", "bf16", 8, 1024, "none", 2),
    ("gpt2", "eager", "fp32", 4, 512, "none", 1),
    ("gpt2-medium", "sdpa", "bf16", 4, 1024, "none", 1),
    ("gpt2-xl", "flash", "bf16", 4, 1024, "block", 1),
    ("opt-350m-like", "eager", "fp16", 4, 1024, "none", 1),
    ("opt-1.3b", "sdpa", "bf16", 8, 2048, "none", 1),
    ("pythia-410m", "eager", "bf16", 4, 2048, "none", 1),
    ("pythia-1b", "sdpa", "bf16", 8, 2048, "none", 2),
    ("bert-base", "eager", "fp32", 64, 128, "none", 1),
    ("bert-base", "sdpa", "fp32", 128, 128, "none", 1),
    ("bert-large", "sdpa", "bf16", 16, 512, "none", 1),
    ("llama-7b", "sdpa", "bf16", 1, 4096, "none", 1),
    ("llama-7b", "eager", "bf16", 1, 2048, "block", 1),
    ("llama-1b", "flash", "bf16", 4, 2048, "none", 1),
    ("mistral-7b", "sdpa", "bf16", 2, 4096, "block", 1),
    ("phi3-mini", "sdpa", "bf16", 2, 2048, "none", 1),
    ("phi3-mini", "eager", "bf16", 1, 2048, "none", 1),
    ("qwen2-1.5b", "sdpa", "bf16", 4, 2048, "none", 1),
    ("qwen2-1.5b", "eager", "fp32", 1, 1024, "none", 1),
    ("qwen3-0.6b-like", "sdpa", "bf16", 8, 1024, "none", 1),
    ("qwen3-0.6b-like", "eager", "bf16", 2, 2048, "none", 1),
    ("olmo2-7b", "sdpa", "bf16", 1, 4096, "none", 1),
    ("olmo2-7b", "eager", "bf16", 1, 2048, "block", 1),
    ("smollm3-3b", "sdpa", "bf16", 2, 4096, "none", 1),
    ("granite-2b", "sdpa", "bf16", 4, 2048, "none", 1),
    ("gemma2-2b-like", "eager", "bf16", 2, 2048, "none", 1),
    ("gemma2-2b-like", "eager", "bf16", 2, 2048, "block", 1),
    ("gemma3-1b-like", "flash", "bf16", 4, 1024, "none", 1),
    ("gemma3-1b-like", "eager", "bf16", 1, 1024, "none", 1),
    ("falcon-7b", "eager", "bf16", 2, 1024, "none", 1),
    ("falcon-7b", "sdpa", "bf16", 2, 1024, "none", 1),
    ("falcon-7b", "sdpa", "bf16", 1, 2048, "block", 1),
    ("falcon-40b-like", "sdpa", "bf16", 2, 2048, "none", 1),
    ("falcon-40b-like", "eager", "bf16", 1, 1024, "none", 1),
]


def config_of(model, sequence):
    import transformers
    family, hidden, layers, heads, kv_heads, width, vocabulary, tied, dropout = MODELS[model]
    if family == "gpt2":
        return transformers.GPT2Config(
            n_embd=hidden, n_layer=layers, n_head=heads, n_inner=width, vocab_size=vocabulary,
            n_positions=sequence, resid_pdrop=dropout, embd_pdrop=dropout, attn_pdrop=dropout)
    common = dict(hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=heads,
                  vocab_size=vocabulary, max_position_embeddings=sequence)
    if family == "opt":
        return transformers.OPTConfig(word_embed_proj_dim=hidden, ffn_dim=width, dropout=dropout,
                                      attention_dropout=0.0, **common)
    common["intermediate_size"] = width
    if family == "gpt_neox":
        return transformers.GPTNeoXConfig(hidden_dropout=dropout, attention_dropout=dropout,
                                          **common)
    if family == "bert":
        return transformers.BertConfig(hidden_dropout_prob=dropout,
                                       attention_probs_dropout_prob=dropout, **common)
    if family == "falcon":
        del common["intermediate_size"]
        return transformers.FalconConfig(ffn_hidden_size=width, num_kv_heads=kv_heads,
                                         new_decoder_architecture=kv_heads > 1, **common)
    common.update(num_key_value_heads=kv_heads, tie_word_embeddings=tied,
                  attention_dropout=dropout)
    if family == "phi3":
        return transformers.Phi3Config(pad_token_id=0, **common)
    if family in ("mistral", "qwen3", "gemma2", "gemma3_text"):
        common["head_dim"] = hidden // heads
    if family in ("gemma2", "gemma3_text"):
        # No window hides anything.
        common["sliding_window"] = 2 * sequence
    if family == "mistral":
        return transformers.MistralConfig(sliding_window=None, **common)
    return {"llama": transformers.LlamaConfig, "qwen2": transformers.Qwen2Config,
            "qwen3": transformers.Qwen3Config, "olmo2": transformers.Olmo2Config,
            "smollm3": transformers.SmolLM3Config,
            "granite": transformers.GraniteConfig, "gemma2": transformers.Gemma2Config,
            "gemma3_text": transformers.Gemma3TextConfig}[family](**common)


def as_on_a_gpu():
    """Where the CPU's kernels keep other tensors than the GPU's."""
    import transformers.masking_utils as masking

    def dropout(input, p=0.5, training=True, inplace=False):
        return torch.native_dropout(input, p, True)[0] if training and p > 0 else input

    def attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None,
                  enable_gqa=False):
        if query.shape[1] != key.shape[1] and not enable_gqa:
            return torch.ops.aten._scaled_dot_product_attention_math(
                query, key, value, attn_mask, dropout_p, is_causal, None, scale=scale)[0]
        if attn_mask is not None:
            # Falcon always makes one, which takes the place of PyTorch's flash kernel.
            bias = torch.where(attn_mask, 0.0, -torch.inf).to(query.dtype)
            bias = bias.expand(*query.shape[:-1], key.shape[2])
            return torch.ops.aten._scaled_dot_product_efficient_attention(
                query, key, value, bias, True, dropout_p, is_causal, scale=scale)[0]
        return torch.ops.aten._scaled_dot_product_flash_attention(
            query, key, value, dropout_p, is_causal, False, scale=scale)[0]

    functional.dropout = dropout
    functional.scaled_dot_product_attention = attention
    # Fake tensors have no values by which a mask could be found to be unnecessary.
    masking.is_tracing = lambda *arguments, **named: False
    masking.find_packed_sequence_indices = lambda *arguments, **named: None


def train(case):
    import transformers
    from torch._subclasses.fake_tensor import FakeTensorMode
    name, attention, precision, micro_batch, sequence, recompute, micro_steps = case
    kind = MODELS[name][0]
    tracker = Tracker()
    with FakeTensorMode(allow_non_fake_inputs=True):
        base = transformers.AutoModelForMaskedLM if kind == "bert" else \
            transformers.AutoModelForCausalLM
        model = base.from_config(
            config_of(name, sequence),
            attn_implementation="eager" if attention == "eager" else "sdpa",
            dtype={"bf16": torch.bfloat16, "fp16": torch.float16,
                   "fp32": torch.float32}[precision])
        model.train()
        model.config.use_cache = False
        if recompute == "block":
            model.gradient_checkpointing_enable({"use_reentrant": False})
        for tensor in [*model.parameters(), *model.buffers()]:
            tracker.add(tensor)
        parameter_bytes = sum(p.numel() * p.element_size() for p in model.parameters())
        with tracker:
            for step in range(micro_steps):
                tracker.enter("forward")
                tokens = torch.zeros(micro_batch, sequence, dtype=torch.long)
                labels = torch.zeros(micro_batch, sequence, dtype=torch.long)
                # As the Trainer does: what remains of the output is the loss.
                loss = model(input_ids=tokens, labels=labels).loss
                del tokens, labels
                tracker.enter("backward")
                loss.backward()
                del loss
    peak = max(tracker.peaks.values())
    reserved = replay(tracker.events)
    family, hidden, layers, heads, kv_heads, width, vocabulary, tied, dropout = MODELS[name]
    return {"model": {"family": family, "hidden_size": hidden, "num_layers": layers,
                      "num_heads": heads, "num_kv_heads": kv_heads, "intermediate_size": width,
                      "vocab_size": vocabulary, "tie_embeddings": tied, "dropout": dropout,
                      "max_positions": sequence},
            "name": name, "attention": attention, "precision": precision,
            "micro_batch": micro_batch, "sequence_length": sequence, "recompute": recompute,
            "accumulation_steps": micro_steps, "parameter_bytes": parameter_bytes,
            "peak_bytes": peak, "reserved_bytes": reserved,
            "needed_bytes": needed(tracker.events, peak, reserved)}


def train_deberta(micro_batch, layers=48, sequence=256):
    """DeBERTa v2 XXL, which DeepSpeed's tutorial tunes: fp16, classifying. kept_bytes: as backward begins."""
    import transformers
    from torch._subclasses.fake_tensor import FakeTensorMode
    tracker = Tracker()
    with FakeTensorMode(allow_non_fake_inputs=True):
        model = transformers.AutoModelForSequenceClassification.from_config(
            transformers.DebertaV2Config(
                hidden_size=1536, num_hidden_layers=layers, num_attention_heads=24,
                intermediate_size=6144, vocab_size=128100, max_position_embeddings=512,
                type_vocab_size=0, relative_attention=True, position_buckets=256,
                norm_rel_ebd="layer_norm", share_att_key=True, pos_att_type=["p2c", "c2p"],
                conv_kernel_size=3, conv_act="gelu", position_biased_input=False,
                attention_probs_dropout_prob=0.1, hidden_dropout_prob=0.1),
            dtype=torch.float16)
        model.train()
        for tensor in [*model.parameters(), *model.buffers()]:
            tracker.add(tensor)
        with tracker:
            tracker.enter("forward")
            tokens = torch.zeros(micro_batch, sequence, dtype=torch.long)
            logits = model(input_ids=tokens, attention_mask=torch.ones_like(tokens)).logits
            loss = functional.cross_entropy(logits, torch.zeros(micro_batch, dtype=torch.long))
            kept = tracker.now
            tracker.enter("backward")
            loss.backward()
    return {"micro_batch": micro_batch, "layers": layers, "sequence_length": sequence,
            "parameters": sum(p.numel() for p in model.parameters()), "kept_bytes": kept,
            "peak_bytes": max(tracker.peaks.values())}


# deepspeed -----------------------------------------------------------------------------------------

# precision, micro-steps, zero_optimization, other sections, family; all: hidden 128, 4 layers,
# vocabulary 1000. Without contiguous_gradients DeepSpeed reduces nothing where there is no GPU.
GATHERS = {"stage": 3, "reduce_bucket_size": 200000, "stage3_prefetch_bucket_size": 100000,
           "stage3_param_persistence_threshold": 1000}
RELEASES = dict(GATHERS, stage3_max_reuse_distance=0, stage3_prefetch_bucket_size=0)
STEPS = [
    ("bf16", 1, {"stage": 0}),
    ("fp16", 2, {"stage": 0}),
    ("fp32", 1, {"stage": 0}),
    ("bf16", 1, {"stage": 1, "reduce_bucket_size": 200000}),
    ("bf16", 2, {"stage": 1, "reduce_bucket_size": 200000, "overlap_comm": True}),
    ("bf16", 1, {"stage": 2, "reduce_bucket_size": 200000}),
    ("bf16", 2, {"stage": 2, "reduce_bucket_size": 2000000, "overlap_comm": True}),
    ("bf16", 1, {"stage": 3, "reduce_bucket_size": 200000, "stage3_prefetch_bucket_size": 100000,
                 "stage3_param_persistence_threshold": 1000}),
    ("bf16", 2, {"stage": 3, "reduce_bucket_size": 2000000}),
    ("bf16", 1, {"stage": 1, "reduce_bucket_size": 200000,
                 "offload_optimizer": {"device": "cpu"}}),
    ("bf16", 2, {"stage": 2, "reduce_bucket_size": 200000,
                 "offload_optimizer": {"device": "cpu"}}),
    ("bf16", 2, {"stage": 3, "reduce_bucket_size": 200000,
                 "offload_optimizer": {"device": "cpu"}}),
    ("bf16", 1, dict(GATHERS, zero_hpz_partition_size=2)),
    ("bf16", 1, dict(GATHERS, mics_shard_size=2)),
    ("bf16", 1, RELEASES, {}, "llama"),
    ("bf16", 1, dict(RELEASES, memory_efficient_linear=False), {}, "llama"),
    ("bf16", 2, dict(GATHERS, offload_optimizer={"device": "cpu"}),
     {"data_types": {"grad_accum_dtype": "fp32"}}),
    ("bf16", 2, {"stage": 1, "reduce_bucket_size": 200000, "offload_optimizer": {"device": "cpu"}},
     {"data_types": {"grad_accum_dtype": "fp32"}}),
    ("bf16", 2, {"stage": 1, "reduce_bucket_size": 200000},
     {"data_types": {"grad_accum_dtype": "fp32"}}),
    ("fp16", 2, {"stage": 1, "reduce_bucket_size": 200000},
     {"data_types": {"grad_accum_dtype": "fp32"}}),
    ("bf16", 1, dict(RELEASES, zero_quantized_weights=True)),
    ("bf16", 1, dict(GATHERS, zero_quantized_weights=True, stage3_max_reuse_distance=200000)),
    ("fp32", 1, dict(RELEASES, zero_quantized_weights=True), {}, "llama"),
]
# Two nodes of two ranks.
HALVES = {"communication_data_type": "fp16"}
STEPS_ON_FOUR_RANKS = [
    ("bf16", 1, GATHERS, HALVES),
    ("bf16", 1, dict(GATHERS, zero_quantized_gradients=True), HALVES),
    ("fp16", 1, dict(GATHERS, zero_quantized_gradients=True, reduce_bucket_size=2000000)),
    ("bf16", 2, dict(RELEASES, zero_quantized_gradients=True, zero_quantized_weights=True), HALVES),
]

# What releases from 0.19.8 on hold otherwise.
SUMS = {"data_types": {"grad_accum_dtype": "fp32"}}
HOST = {"offload_optimizer": {"device": "cpu"}}
STEPS_FROM_0_19_8 = [
    ("bf16", 1, {"stage": 2, "reduce_bucket_size": 200000}),
    ("bf16", 1, {"stage": 2, "reduce_bucket_size": 200000}, SUMS),
    ("bf16", 2, {"stage": 2, "reduce_bucket_size": 200000}, SUMS),
    ("fp16", 2, {"stage": 2, "reduce_bucket_size": 2000000, "overlap_comm": True}, SUMS),
    ("fp16", 1, {"stage": 1, "reduce_bucket_size": 200000}, SUMS),
    ("fp16", 2, {"stage": 1, "reduce_bucket_size": 200000}, SUMS),
    ("fp16", 2, {"stage": 1, "reduce_bucket_size": 200000, "overlap_comm": True}, SUMS),
    ("bf16", 2, {"stage": 1, "reduce_bucket_size": 200000}, SUMS),
    ("bf16", 2, {"stage": 1, "reduce_bucket_size": 200000},
     dict(SUMS, bf16={"enabled": True, "immediate_grad_update": True})),
    ("bf16", 2, dict(HOST, stage=1, reduce_bucket_size=200000), SUMS),
    ("fp16", 1, dict(HOST, stage=1, reduce_bucket_size=200000), SUMS),
    ("bf16", 2, dict(HOST, stage=2, reduce_bucket_size=200000), SUMS),
    ("fp16", 1, dict(HOST, stage=2, reduce_bucket_size=200000), SUMS),
    ("bf16", 1, dict(HOST, stage=1, reduce_bucket_size=200000)),
    ("bf16", 2, dict(HOST, stage=2, reduce_bucket_size=200000)),
    ("bf16", 1, dict(HOST, stage=1, reduce_bucket_size=100000)),
    ("bf16", 2, dict(HOST, stage=2, reduce_bucket_size=100000)),
    ("bf16", 2, {"stage": 2, "reduce_bucket_size": 200000, "parameter_alignment": True}),
    ("bf16", 2, {"stage": 2, "reduce_bucket_size": 200000, "compute_grad_norm": False},
     {"gradient_clipping": 0.0, "bf16": {"enabled": True, "check_grad_overflow": False}}),
    ("bf16", 2, dict(GATHERS, **HOST), SUMS),
]
# What does not train all parameters, or not by Adam of four bytes.
STEPS_FROM_0_19_8 += [
    ("bf16", micro_steps, zero, {}, "llama", trains)
    for zero in ({"stage": 0}, {"stage": 1, "reduce_bucket_size": 200000},
                 {"stage": 2, "reduce_bucket_size": 200000},
                 dict(GATHERS, stage3_max_reuse_distance=0))
    for micro_steps in (1, 2) for trains in ("lora", "adamw_8bit")]


def states_of(parameter, trains):
    if trains != "adamw_8bit":
        return {"step": 0, "exp_avg": torch.zeros_like(parameter.data),
                "exp_avg_sq": torch.zeros_like(parameter.data)}
    # bitsandbytes' by blocks of 256 (bitsandbytes/optim/optimizer.py, init_state).
    elements, blocks = parameter.numel(), -(-parameter.numel() // 256)
    return {"step": 0, "state1": torch.zeros(elements, dtype=torch.uint8),
            "state2": torch.zeros(elements, dtype=torch.uint8),
            "absmax1": torch.zeros(blocks), "absmax2": torch.zeros(blocks)}


def optimizer_of(parameters, is_offloaded, trains):
    from deepspeed.ops.adam import DeepSpeedCPUAdam, FusedAdam

    def make(base):
        class Adam(base):
            def __init__(self, parameters):
                torch.optim.Optimizer.__init__(self, parameters, dict(
                    lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0,
                    bias_correction=True, amsgrad=False))
                self.fp32_optimizer_states = True

            def __del__(self):
                pass

            def step(self, *arguments, **named):
                for group in self.param_groups:
                    for parameter in group["params"]:
                        if parameter.grad is not None and not self.state[parameter]:
                            self.state[parameter] = states_of(parameter, trains)
        return Adam(parameters)
    if trains == "adamw_8bit":  # an optimizer that DeepSpeed does not know
        return make(torch.optim.Optimizer)
    return make(DeepSpeedCPUAdam if is_offloaded else FusedAdam)


def quantize_in_python(tracker):
    import deepspeed_traffic

    class Quantizer(deepspeed_traffic.PythonQuantizer):
        pass

    def counted(name):
        inner = getattr(deepspeed_traffic.PythonQuantizer, name)

        def call(*arguments):
            was_muted, tracker.is_muted = tracker.is_muted, True
            result = inner(*arguments)
            tracker.is_muted = was_muted
            if not was_muted:
                for leaf in tree_leaves(result):
                    tracker.add(leaf)
            return result
        setattr(Quantizer, name, staticmethod(call))

    for name in ("quantize", "dequantize", "swizzle_quant", "quantized_reduction"):
        counted(name)
    deepspeed_traffic.mend_quantization(Quantizer)


PLAIN_LINEAR = functional.linear


def run_steps(case):
    import deepspeed
    import transformers
    from deepspeed.utils import groups
    # What stage 3 leaves to the cases behind it: its linear function, and the group of hpZ.
    functional.linear = PLAIN_LINEAR
    groups._ZERO_PARAM_INTRA_PARALLEL_GROUP = None
    precision, micro_steps, zero, more, family, trains = \
        case + ({}, "gpt2", "all")[len(case) - 3:]
    micro_batch, sequence = 1, 16
    tracker = Tracker()
    quantize_in_python(tracker)
    with tracker:
        if family == "llama":
            model = transformers.LlamaForCausalLM(transformers.LlamaConfig(
                hidden_size=128, num_hidden_layers=4, num_attention_heads=4,
                intermediate_size=344, vocab_size=1000, max_position_embeddings=128,
                tie_word_embeddings=False, use_cache=False))
        else:
            model = transformers.GPT2LMHeadModel(transformers.GPT2Config(
                n_embd=128, n_layer=4, n_head=4, vocab_size=1000, n_positions=128, resid_pdrop=0,
                embd_pdrop=0, attn_pdrop=0, bos_token_id=0, eos_token_id=0, use_cache=False))
        if trains == "lora":
            import peft
            model = peft.get_peft_model(model, peft.LoraConfig(
                r=8, target_modules=["q_proj", "v_proj"], lora_dropout=0.0))
        config = {"train_micro_batch_size_per_gpu": micro_batch,
                  "gradient_accumulation_steps": micro_steps, "zero_optimization": zero,
                  "gradient_clipping": 1.0, "zero_allow_untested_optimizer": True,
                  "zero_force_ds_cpu_optimizer": False, **more}
        if precision != "fp32":
            config.setdefault(precision, {"enabled": True})
        if precision == "fp16":
            config["fp16"]["loss_scale"] = 1  # no update is skipped
        engine = deepspeed.initialize(
            model=model, config=config,
            optimizer=optimizer_of([p for p in model.parameters() if p.requires_grad],
                                   "offload_optimizer" in zero, trains))[0]
        gc.collect()
        for step in range(2):  # the second one has states, and stage 3's trace
            tracker.peaks.clear()
            for micro_step in range(micro_steps):
                tokens = torch.zeros(micro_batch, sequence, dtype=torch.long)
                tracker.enter("forward")
                loss = engine(input_ids=tokens, labels=tokens).loss
                gc.collect()  # what only cycles of objects hold goes at no certain time
                tracker.enter("backward")
                loss_bytes = tracker.now
                engine.backward(loss)
                del loss
                gc.collect()
                # Only the last one's does anything.
                tracker.enter("update" if micro_step == micro_steps - 1 else "backward")
                engine.step()
        peaks = dict(tracker.peaks)
    engine.destroy()
    ranks = torch.distributed.get_world_size()
    # Of the rank with most.
    found = torch.tensor([loss_bytes, max(peaks["forward"], peaks["backward"]), peaks["update"]])
    torch.distributed.all_reduce(found, op=torch.distributed.ReduceOp.MAX)
    loss_bytes, backward_bytes, update_bytes = found.tolist()
    if ranks == 4:
        more = dict(more, ranks_per_node=2)
    return {"deepspeed": deepspeed.__version__.split("+")[0], "precision": precision,
            "accumulation_steps": micro_steps, "zero_optimization": zero, "ranks": ranks,
            "micro_batch": micro_batch, "sequence_length": sequence, "family": family,
            **({} if trains == "all" else {"trains": trains}), **more,
            "loss_bytes": loss_bytes,
            "backward_bytes": backward_bytes,
            "update_bytes": update_bytes}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("part", choices=["training", "deberta", "deepspeed"])
    parser.add_argument("--out", required=True, help="JSON file")
    parser.add_argument("--skip", type=int, default=0, help="leave out so many of deepspeed's cases")
    arguments = parser.parse_args()
    import transformers
    made_with = {"torch": torch.__version__, "transformers": transformers.__version__}
    rank = 0
    results = []
    if arguments.part == "training":
        as_on_a_gpu()
        for case in TRAININGS:
            result = train(case)
            results.append(result)
            print(f"{result['name']:16} {result['attention']:5} {result['precision']} "
                  f"{result['micro_batch']:4} × {result['sequence_length']:5} "
                  f"{result['recompute']:5} peak {result['peak_bytes'] / MIB:9.0f} MiB, reserved "
                  f"{result['reserved_bytes'] / result['peak_bytes']:.3f}, needed "
                  f"{result['needed_bytes'] / result['peak_bytes']:.3f}", flush=True)
    elif arguments.part == "deberta":
        as_on_a_gpu()
        for case in ((1, 2), (1, 3), (2, 2), (2, 3), (11,), (14,), (15,)):
            results.append(train_deberta(*case))
            print(results[-1], flush=True)
    else:
        os.environ["DS_ACCELERATOR"] = "cpu"
        import deepspeed
        import deepspeed_traffic
        from deepspeed.accelerator import get_accelerator
        get_accelerator().is_fp16_supported = lambda: True  # few processors compute in it
        deepspeed.init_distributed(dist_backend="gloo", verbose=False)
        is_new = tuple(map(int, deepspeed.__version__.split("+")[0].split("."))) >= (0, 19, 8)
        if not is_new:
            deepspeed_traffic.mend_mics()
        rank = torch.distributed.get_rank()
        made_with["deepspeed"] = deepspeed.__version__
        four_ranks = torch.distributed.get_world_size() == 4
        steps = STEPS_ON_FOUR_RANKS if four_ranks else STEPS_FROM_0_19_8 if is_new else STEPS
        for case in steps[arguments.skip:]:
            result = run_steps(case)
            results.append(result)
            if rank == 0:
                print(json.dumps(result), flush=True)
    if rank == 0:
        with open(arguments.out, "w", encoding="utf-8") as file:
            json.dump({"made_with": made_with, arguments.part: results}, file, indent=1)
            file.write("\n")


if __name__ == "__main__":
    main()
