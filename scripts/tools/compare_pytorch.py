#!/usr/bin/env python3
"""The training step of mpi_tests/bench/gpu_step_bench in PyTorch, timed on the same card.

    python3 scripts/tools/compare_pytorch.py --model gpt2 --micro-batch 32 --tokens 1024 --peak-tflops 989

Needs PyTorch 2.5 or newer and one GPU (`--device cpu` tries the program). Arguments are gpu_step_bench's.
The step: forward, backward, the gradient's norm clipped to 1, AdamW; attention by scaled_dot_product_attention,
of each kernel that --attention names, the fastest of which is the result; the model under torch.compile.

`--precision master` (default) is what DeepSpeed's bf16 does: weights, activations and gradients in bf16, and
for the update an fp32 copy of the weights with fp32 moments. fp32 copies of gradients exist for one part of the
parameters at a time (--update-elements), so that they take little memory. `--precision autocast` keeps weights and
gradients in fp32 and computes under torch.autocast in bf16; `fp32` does without.

Losses are cross-entropy of fp32 logits. Steps are timed by CUDA events; the median of --steps after
--warmup is given with the 5 % and 95 % quantiles. FLOP are those of the projections and the head three times and of
causal attention's half, 6N + 6LCT a token, recomputation not counted: the same formula as dstune-mpi's.
"""
import argparse
import contextlib
import json
import statistics
import sys
import time

try:
    import torch
    import torch.nn.functional as F
    import torch.utils.checkpoint
    from torch import nn
    from torch.nn.attention import SDPBackend, sdpa_kernel
except ImportError as error:
    sys.exit(f"compare_pytorch.py needs PyTorch: {error}")

# The presets of dstune-mpi that the comparison is about, as Hugging Face's config.json has them.
PRESETS = {
    "gpt2": {"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12},
    "gpt2-medium": {"model_type": "gpt2", "n_embd": 1024, "n_layer": 24, "n_head": 16},
    "gpt2-large": {"model_type": "gpt2", "n_embd": 1280, "n_layer": 36, "n_head": 20},
    "gpt2-xl": {"model_type": "gpt2", "n_embd": 1600, "n_layer": 48, "n_head": 25},
    "tinyllama-1.1b": {"model_type": "llama", "hidden_size": 2048, "num_hidden_layers": 22, "num_attention_heads": 32,
                       "num_key_value_heads": 4, "intermediate_size": 5632},
    "llama-7b": {"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
                 "intermediate_size": 11008, "rms_norm_eps": 1e-6},
}
ATTENTION = {"flash": [SDPBackend.FLASH_ATTENTION], "cudnn": [SDPBackend.CUDNN_ATTENTION]}


def read_model(name):
    """The sizes of a preset or a config.json: a namespace with dstune-mpi's names."""
    if name.endswith(".json"):
        with open(name, encoding="utf-8") as file:
            config = json.load(file)
    elif name in PRESETS:
        config = PRESETS[name]
    else:
        sys.exit(f"--model {name}: a config.json or one of {', '.join(PRESETS)}")
    kind = config.get("model_type")
    if kind == "gpt2":
        hidden = config.get("n_embd", 768)
        heads = config.get("n_head", 12)
        return argparse.Namespace(
            kind=kind, hidden=hidden, layers=config.get("n_layer", 12), heads=heads, kv_heads=heads,
            inner=config.get("n_inner") or 4 * hidden, vocabulary=config.get("vocab_size", 50257),
            positions=config.get("n_positions", 1024), epsilon=config.get("layer_norm_epsilon", 1e-5))
    if kind == "llama":
        heads = config["num_attention_heads"]
        return argparse.Namespace(
            kind=kind, hidden=config["hidden_size"], layers=config["num_hidden_layers"], heads=heads,
            kv_heads=config.get("num_key_value_heads") or heads, inner=config["intermediate_size"],
            vocabulary=config.get("vocab_size", 32000), positions=config.get("max_position_embeddings", 2048),
            epsilon=config.get("rms_norm_eps", 1e-5), theta=config.get("rope_theta", 10000.0))
    sys.exit(f"--model {name}: model_type {kind} is neither gpt2 nor llama")


def rotate(x, cos, sin):
    """Positions turn pairs of a head's halves, as LLaMA has them."""
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), dim=-1) * sin


class Attention(nn.Module):
    def __init__(self, m):
        super().__init__()
        self.heads, self.kv_heads, self.size = m.heads, m.kv_heads, m.hidden // m.heads
        has_bias = m.kind == "gpt2"
        self.qkv = nn.Linear(m.hidden, (m.heads + 2 * m.kv_heads) * self.size, bias=has_bias)
        self.projection = nn.Linear(m.hidden, m.hidden, bias=has_bias)

    def forward(self, x, turn):
        batch, length, width = x.shape
        heads = self.qkv(x).view(batch, length, -1, self.size).transpose(1, 2)
        q, k, v = heads.split((self.heads, self.kv_heads, self.kv_heads), dim=1)
        if turn is not None:
            q, k = rotate(q, *turn), rotate(k, *turn)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.kv_heads < self.heads)
        return self.projection(out.transpose(1, 2).reshape(batch, length, width))


class Gpt2Mlp(nn.Module):
    def __init__(self, m):
        super().__init__()
        self.fc = nn.Linear(m.hidden, m.inner)
        self.projection = nn.Linear(m.inner, m.hidden)

    def forward(self, x):
        return self.projection(F.gelu(self.fc(x), approximate="tanh"))


class LlamaMlp(nn.Module):
    def __init__(self, m):
        super().__init__()
        self.gate_up = nn.Linear(m.hidden, 2 * m.inner, bias=False)
        self.projection = nn.Linear(m.inner, m.hidden, bias=False)

    def forward(self, x):
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.projection(F.silu(gate) * up)


def make_norm(m):
    return nn.LayerNorm(m.hidden, eps=m.epsilon) if m.kind == "gpt2" else nn.RMSNorm(m.hidden, eps=m.epsilon)


class Block(nn.Module):
    def __init__(self, m):
        super().__init__()
        self.norm1, self.norm2 = make_norm(m), make_norm(m)
        self.attention = Attention(m)
        self.mlp = Gpt2Mlp(m) if m.kind == "gpt2" else LlamaMlp(m)

    def forward(self, x, turn):
        x = x + self.attention(self.norm1(x), turn)
        return x + self.mlp(self.norm2(x))


class Model(nn.Module):
    """Tokens to the mean loss."""

    def __init__(self, m, recompute):
        super().__init__()
        self.shape, self.recompute = m, recompute
        self.tokens = nn.Embedding(m.vocabulary, m.hidden)
        self.positions = nn.Embedding(m.positions, m.hidden) if m.kind == "gpt2" else None
        self.blocks = nn.ModuleList(Block(m) for _ in range(m.layers))
        self.norm = make_norm(m)
        self.head = nn.Linear(m.hidden, m.vocabulary, bias=False)
        for parameter in self.parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)
        if m.kind == "gpt2":
            self.head.weight = self.tokens.weight

    def turn(self, length, like):
        if self.positions is not None:
            return None
        size = self.shape.hidden // self.shape.heads
        steps = torch.arange(0, size, 2, device=like.device, dtype=torch.float32) / size
        angles = torch.outer(torch.arange(length, device=like.device, dtype=torch.float32), self.shape.theta ** -steps)
        angles = torch.cat((angles, angles), dim=-1)
        return angles.cos().to(like.dtype), angles.sin().to(like.dtype)

    def forward(self, tokens, targets):
        x = self.tokens(tokens)
        if self.positions is not None:
            x = x + self.positions.weight[:tokens.shape[1]]
        turn = self.turn(tokens.shape[1], x)
        for block in self.blocks:
            if self.recompute == "block":
                x = torch.utils.checkpoint.checkpoint(block, x, turn, use_reentrant=False)
            else:
                x = block(x, turn)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())


def flops_per_token(model, m, length):
    """Chowdhery et al. 2022, appendix B, attention counted causally; what is only looked up does not count."""
    count = sum(parameter.numel() for parameter in model.parameters())
    if model.positions is not None:
        count -= model.positions.weight.numel()
    if model.head.weight is not model.tokens.weight:
        count -= model.tokens.weight.numel()
    return 6 * count + 6 * m.layers * m.hidden * length


ADAMW = {"lr": 1e-4, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.01}


class MasterAdamW:
    """AdamW on fp32 copies of the parameters, part after part."""

    def __init__(self, parameters, elements, fused):
        self.parts = []
        part, size = [], 0
        for parameter in parameters:
            if part and size + parameter.numel() > elements:
                self.parts.append(part)
                part, size = [], 0
            part.append(parameter)
            size += parameter.numel()
        self.parts.append(part)
        self.masters = [[p.detach().float().clone() for p in part] for part in self.parts]
        self.optimizers = [torch.optim.AdamW(masters, fused=fused, **ADAMW) for masters in self.masters]

    @torch.no_grad()
    def step(self):
        gradients = [p.grad for part in self.parts for p in part]
        norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients, 2, torch.float32)))
        factor = torch.clamp(1.0 / (norm + 1e-6), max=1.0)
        for part, masters, optimizer in zip(self.parts, self.masters, self.optimizers):
            copies = [torch.empty_like(master) for master in masters]
            torch._foreach_copy_(copies, [p.grad for p in part])
            torch._foreach_mul_(copies, factor)
            for master, copy in zip(masters, copies):
                master.grad = copy
            optimizer.step()
            torch._foreach_copy_(part, masters)
            optimizer.zero_grad(set_to_none=True)
            for p in part:
                p.grad = None


class ClippedAdamW:
    def __init__(self, parameters, fused):
        self.parameters = parameters
        self.optimizer = torch.optim.AdamW(parameters, fused=fused, **ADAMW)

    def step(self):
        torch.nn.utils.clip_grad_norm_(self.parameters, 1.0, foreach=True)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


class Clock:
    """Seconds of steps: by events on a GPU, whose queue is never waited for in between."""

    def __init__(self, device):
        self.on_gpu = device.type == "cuda"
        self.marks = []

    def mark(self):
        if self.on_gpu:
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self.marks.append(event)
        else:
            self.marks.append(time.perf_counter())

    def seconds(self):
        pairs = list(zip(self.marks, self.marks[1:]))
        if not self.on_gpu:
            return [end - begin for begin, end in pairs]
        torch.cuda.synchronize()
        return [begin.elapsed_time(end) / 1e3 for begin, end in pairs]


def measure(arguments, m, device, attention):
    """Prints one kernel's figures; returns its median seconds and FLOP a token."""
    torch.manual_seed(0)
    in_16_bits = arguments.precision == "master"
    with torch.device(device):
        model = Model(m, arguments.recompute).to(torch.bfloat16 if in_16_bits else torch.float32)
    flops = flops_per_token(model, m, arguments.tokens)
    parameters = list(model.parameters())
    fused = device.type == "cuda"
    optimizer = (MasterAdamW(parameters, arguments.update_elements, fused) if in_16_bits
                 else ClippedAdamW(parameters, fused))
    run = model if arguments.compile == "none" else torch.compile(model, mode=arguments.compile)
    autocast = (torch.autocast(device.type, dtype=torch.bfloat16) if arguments.precision == "autocast"
                else contextlib.nullcontext())
    kernels = sdpa_kernel(ATTENTION[attention]) if device.type == "cuda" else contextlib.nullcontext()
    shape = (4, arguments.micro_batch, arguments.tokens + 1)  # batches in turn
    batches = torch.randint(m.vocabulary, shape, device=device)
    clock = Clock(device)
    loss, batch = None, 0
    with kernels:
        for step in range(arguments.warmup + arguments.steps):
            if step >= arguments.warmup:
                clock.mark()
            for _ in range(arguments.accumulation):
                tokens = batches[batch % len(batches)]
                batch += 1
                with autocast:
                    loss = run(tokens[:, :-1], tokens[:, 1:])
                (loss / arguments.accumulation).backward()
            optimizer.step()
        clock.mark()
    seconds = sorted(clock.seconds())
    median = statistics.median(seconds)
    low, high = seconds[round(0.05 * (len(seconds) - 1))], seconds[round(0.95 * (len(seconds) - 1))]
    print(f"attention {attention}: median {1e3 * median:.3f} ms of {len(seconds)} "
          f"(5 % below {1e3 * low:.3f}, 95 % below {1e3 * high:.3f}), loss {loss.item():.4f}", flush=True)
    if device.type == "cuda":
        gib = 1 << 30
        print(f"memory: {torch.cuda.max_memory_allocated() / gib:.3f} GiB allocated at most, "
              f"{torch.cuda.max_memory_reserved() / gib:.3f} GiB reserved", flush=True)
    return median, flops


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--model", default="gpt2")
    parser.add_argument("--micro-batch", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=1024)
    parser.add_argument("--accumulation", type=int, default=1)
    parser.add_argument("--recompute", choices=("none", "block"), default="none")
    parser.add_argument("--precision", choices=("master", "autocast", "fp32"), default="master")
    parser.add_argument("--update-elements", type=int, default=1 << 28)
    parser.add_argument("--attention", nargs="+", choices=tuple(ATTENTION), default=["flash"])
    parser.add_argument("--compile", default="default", help="a mode of torch.compile, or none")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--warmup", type=int, default=5)
    parser.add_argument("--peak-tflops", type=float, default=0)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        print("result: no GPU that PyTorch can use")
        sys.exit(77)
    where = torch.cuda.get_device_name() if device.type == "cuda" else "cpu"
    m = read_model(arguments.model)
    print(f"PyTorch {torch.__version__} on {where}: {arguments.model}, {arguments.micro_batch} x {arguments.tokens} "
          f"tokens, {arguments.accumulation} micro-steps, precision {arguments.precision}, recompute "
          f"{arguments.recompute}, compile {arguments.compile}", flush=True)
    best, flops = None, 0
    for attention in arguments.attention:
        try:
            median, flops = measure(arguments, m, device, attention)
            best = median if best is None else min(best, median)
        except torch.OutOfMemoryError as error:
            print(f"attention {attention}: out of memory: {error}")
        except RuntimeError as error:  # a kernel that this card or shape has not
            print(f"attention {attention}: {error}")
        torch.compiler.reset()
        if device.type == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
    if best is None:
        print("result: no measurement")
        sys.exit(1)
    tokens = arguments.micro_batch * arguments.accumulation * arguments.tokens
    rate = flops * tokens / best / 1e12
    share = f", {100 * rate / arguments.peak_tflops:.1f} % of {arguments.peak_tflops:g}" if arguments.peak_tflops else ""
    print(f"result: {tokens / best:.0f} tokens/s, {rate:.3f} TFLOP/s{share}")


if __name__ == "__main__":
    main()
