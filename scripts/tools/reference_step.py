#!/usr/bin/env python3
"""Losses of the reference step (docs/inside/reference-step.md), computed with PyTorch."""
import argparse
import json
import math
import sys

try:
    import numpy
    import torch
except ImportError as error:
    sys.exit(f"reference_step.py needs PyTorch and NumPy: {error}")

MASK = (1 << 64) - 1


NARROW = (torch.float16, torch.bfloat16)


def counter_hash(seed, stream, index):
    """Section 1, for an array of indices (uint64)."""
    offset = (seed * 0xD1342543DE82EF95 + stream * 0xDB4F0B9175AE2165) & MASK
    with numpy.errstate(over="ignore"):
        z = numpy.uint64(offset) + (index + numpy.uint64(1)) * numpy.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
    return z ^ (z >> numpy.uint64(31))


def normal(seed, tensor, shape, deviation):
    """Section 2: values in double precision, not rounded."""
    h = counter_hash(seed, tensor, numpy.arange(math.prod(shape), dtype=numpy.uint64))
    u = sum((h >> numpy.uint64(shift)) & numpy.uint64(0xFFFF) for shift in (0, 16, 32, 48))
    scale = deviation / math.sqrt((65536**2 - 1) / 3)
    return ((u.astype(numpy.int64) - 131070).astype(numpy.float64) * scale).reshape(shape)


def tokens_of_step(seed, step, global_batch, sequence_length, vocabulary):
    """Section 3: [global_batch, sequence_length + 1]."""
    sample = numpy.arange(global_batch, dtype=numpy.uint64)[:, None]
    position = numpy.arange(sequence_length + 1, dtype=numpy.uint64)[None, :]
    h = counter_hash(seed, (1 << 32) + step, (sample << numpy.uint64(32)) + position)
    square = (h >> numpy.uint64(43)) ** numpy.uint64(2)
    v, bits, low = numpy.uint64(vocabulary), numpy.uint64(21), numpy.uint64((1 << 21) - 1)
    token = (v * (square >> bits) + ((v * (square & low)) >> bits)) >> bits
    return torch.from_numpy(token.astype(numpy.int64))


def masked_positions(seed, step, global_batch, length):
    """Section 3, masked: [global_batch, M], the position of every masked token."""
    count = max(1, length * 15 // 100)
    number = numpy.arange(count, dtype=numpy.uint64)[None, :]
    sample = numpy.arange(global_batch, dtype=numpy.uint64)[:, None]
    h = counter_hash(seed, (1 << 33) + step, (sample << numpy.uint64(32)) + number)
    first = number * numpy.uint64(length) // numpy.uint64(count)
    end = (number + numpy.uint64(1)) * numpy.uint64(length) // numpy.uint64(count)
    shift = numpy.uint64(32)
    return torch.from_numpy((first + ((end - first) * (h >> shift) >> shift)).astype(numpy.int64))


def labels_of_step(seed, step, global_batch, numbers, count):
    """Section 3, classes and spans: [global_batch, numbers], each of 0 … count − 1."""
    number = numpy.arange(numbers, dtype=numpy.uint64)[None, :]
    sample = numpy.arange(global_batch, dtype=numpy.uint64)[:, None]
    h = counter_hash(seed, (3 << 32) + step, (sample << numpy.uint64(32)) + number)
    shift = numpy.uint64(32)
    return torch.from_numpy((numpy.uint64(count) * (h >> shift) >> shift).astype(numpy.int64))


GPT2 = {"norm": "layer", "block": "sequential", "positions": "learned", "objective": "next_token",
        "activation": "gelu_tanh", "gated": False, "qkv_bias": True, "projection_bias": True,
        "mlp_bias": True, "query_key_norm": False, "scaled_projections": True,
        "position_offset": 0, "token_types": 0, "rotary_fraction": 1.0,
        "norm_spans_heads": False, "embedding_multiplier": 1.0, "residual_multiplier": 1.0,
        "attention_multiplier": 0.0, "logits_scaling": 1.0, "unit_offset_norm": False,
        "scaled_embeddings": False, "attention_softcap": 0.0, "logits_softcap": 0.0, "shared_norm": False}
LLAMA = GPT2 | {"norm": "rms", "positions": "rotary", "activation": "silu", "gated": True,
                "qkv_bias": False, "projection_bias": False, "mlp_bias": False,
                "scaled_projections": False}
GEMMA = LLAMA | {"block": "double_norm", "activation": "gelu_tanh", "unit_offset_norm": True,
                 "scaled_embeddings": True, "attention_multiplier": 1 / 16}
# Section 4: what each family is made of.
FAMILIES = {
    "gpt2": GPT2,
    "opt": GPT2 | {"activation": "relu", "scaled_projections": False, "position_offset": 2},
    "gpt_neox": GPT2 | {"block": "parallel", "positions": "rotary", "rotary_fraction": 0.25,
                        "activation": "gelu", "scaled_projections": False},
    "bert": GPT2 | {"block": "post_norm", "objective": "masked_token", "activation": "gelu",
                    "scaled_projections": False, "token_types": 2},
    "distilbert": GPT2 | {"block": "post_norm", "objective": "masked_token", "activation": "gelu",
                          "scaled_projections": False},
    "llama": LLAMA,
    "mistral": LLAMA,
    "phi3": LLAMA,
    "qwen2": LLAMA | {"qkv_bias": True},
    "qwen3": LLAMA | {"query_key_norm": True},
    "olmo2": LLAMA | {"block": "branch_norm", "query_key_norm": True, "norm_spans_heads": True},
    "smollm3": LLAMA,
    "granite": LLAMA | {"attention_multiplier": 1.0},
    "gemma2": GEMMA | {"attention_softcap": 50.0, "logits_softcap": 30.0},
    "gemma3_text": GEMMA | {"query_key_norm": True},
    "falcon": GPT2 | {"block": "parallel", "positions": "rotary", "activation": "gelu",
                      "qkv_bias": False, "projection_bias": False, "mlp_bias": False,
                      "scaled_projections": False, "shared_norm": True},
}


# The activation of what an encoder makes of position 0, for classes of sequences.
POOLERS = {"bert": "tanh", "distilbert": "relu"}


def gelu_tanh(z):
    inner = math.sqrt(2 / math.pi) * (z + 0.044715 * z**3)
    return 0.5 * z * (1 + torch.tanh(inner))


ACTIVATIONS = {
    "gelu_tanh": gelu_tanh,
    "gelu": lambda z: 0.5 * z * (1 + torch.erf(z / math.sqrt(2))),
    "relu": torch.relu,
    "silu": lambda z: z * torch.sigmoid(z),
    "tanh": torch.tanh,
}


class Cut(torch.autograd.Function):
    """Section 6: rounds a value to 16 bits where it is stored, and its gradient likewise."""

    @staticmethod
    def forward(context, x, narrow):
        context.narrow = narrow
        return x.to(narrow).to(x.dtype)

    @staticmethod
    def backward(context, gradient):
        return gradient.to(context.narrow).to(gradient.dtype), None


def wide(x):
    """Norms and losses are computed in fp32 where tensors have 16 bits, as PyTorch's own are."""
    return x.float() if x.dtype in NARROW else x


class Model:
    """Computes in `dtype`. `narrow`: a 16-bit type to round to where section 6 says so."""

    def __init__(self, spec, seed, dtype, narrow=None):
        self.spec = spec
        self.parts = FAMILIES[spec["family"]] | spec.get("architecture", {})
        self.seed = seed
        self.dtype = dtype
        self.narrow = narrow
        self.head_size = spec.get("head_size", spec["hidden_size"] // spec["num_heads"])
        self.activation = ACTIVATIONS[self.parts["activation"]]
        self.objective = self.parts["objective"]
        self.masked = self.objective == "masked_token"
        self.head_rows = spec.get("labels") or spec["vocab_size"]
        self.parameters = []
        self.by_name = {}
        self.add_embeddings()
        for layer in range(spec["num_layers"]):
            self.add_block(str(layer))
        self.add_head()

    def add_embeddings(self):
        spec, parts = self.spec, self.parts
        width, sigma = spec["hidden_size"], spec.get("initializer_range", 0.02)
        self.add("embedding", (spec["vocab_size"], width), sigma)
        if parts["positions"] == "learned":
            self.add("positions", (parts["position_offset"] + spec["max_positions"], width), sigma)
        if parts["token_types"]:
            self.add("types", (parts["token_types"], width), sigma)
        if parts["block"] == "post_norm":
            self.add_norm("embedding_norm")

    def add_block(self, layer):
        spec, parts = self.spec, self.parts
        width, inner = spec["hidden_size"], spec["intermediate_size"]
        sigma = spec.get("initializer_range", 0.02)
        branch = sigma / math.sqrt(2 * spec["num_layers"]) if parts["scaled_projections"] else sigma
        heads = spec["num_heads"] * self.head_size
        qkv = heads + 2 * spec["num_kv_heads"] * self.head_size
        self.add_norm(layer + ".norm1")
        self.add_linear(layer + ".qkv", qkv, width, sigma, parts["qkv_bias"])
        if parts["query_key_norm"]:
            for name, count in (("query_norm", "num_heads"), ("key_norm", "num_kv_heads")):
                heads_of_one = spec[count] if parts["norm_spans_heads"] else 1
                self.add_norm_weight(f"{layer}.{name}", heads_of_one * self.head_size)
        self.add_linear(layer + ".projection", width, heads, branch, parts["projection_bias"])
        if parts["block"] == "double_norm":
            self.add_norm(layer + ".branch_norm1")
        if not parts["shared_norm"]:
            self.add_norm(layer + ".norm2")
        fc = 2 * inner if parts["gated"] else inner
        self.add_linear(layer + ".fc", fc, width, sigma, parts["mlp_bias"])
        self.add_linear(layer + ".fc_projection", width, inner, branch, parts["mlp_bias"])
        if parts["block"] == "double_norm":
            self.add_norm(layer + ".branch_norm2")

    def add_head(self):
        spec, width = self.spec, self.spec["hidden_size"]
        sigma = spec.get("initializer_range", 0.02)
        if self.parts["block"] != "post_norm":
            self.add_norm("final_norm")
        if self.objective in ("masked_token", "sequence_class"):
            self.add_linear("transform", width, width, sigma, True)
        if self.masked:
            self.add_norm("transform_norm")
        if not spec.get("tie_embeddings", True):
            self.add("head", (self.head_rows, width), sigma)
        if self.objective != "next_token":
            self.add("head_bias", (self.head_rows,))

    def add(self, name, shape, deviation=None, constant=0.0):
        number = len(self.parameters)
        if deviation is None:
            value = torch.full(shape, constant, dtype=self.dtype)
        else:
            value = torch.from_numpy(normal(self.seed, number, shape, deviation))
            # By way of fp32, as section 2 says; float64 keeps all that was drawn.
            value = value if self.dtype == torch.float64 else value.float()
            value = value.to(self.narrow or self.dtype).to(self.dtype)
        self.parameters.append(value.requires_grad_())
        self.by_name[name] = value

    def add_norm_weight(self, name, width):
        self.add(name, (width,), constant=0.0 if self.parts["unit_offset_norm"] else 1.0)

    def add_norm(self, name):
        self.add_norm_weight(name + ".weight", self.spec["hidden_size"])
        if self.parts["norm"] == "layer":
            self.add(name + ".bias", (self.spec["hidden_size"],))

    def add_linear(self, name, rows, columns, deviation, bias):
        self.add(name + ".weight", (rows, columns), deviation)
        if bias:
            self.add(name + ".bias", (rows,))

    def cut(self, x):
        return x if self.narrow is None else Cut.apply(x, self.narrow)

    def scaled_embedding(self, x):
        """The square root is rounded to the type that parameters have."""
        if not self.parts["scaled_embeddings"]:
            return self.times(x, self.parts["embedding_multiplier"])
        root = torch.tensor(math.sqrt(self.spec["hidden_size"]), dtype=torch.float64)
        return self.times(x, root.to(self.narrow or self.dtype).item())

    @staticmethod
    def capped(x, cap):
        return cap * torch.tanh(x / cap) if cap else x

    def times(self, x, factor):
        return x if factor == 1 else self.cut(factor * self.cut(x))

    def linear(self, name, x):
        y = x @ self.by_name[name + ".weight"].T
        bias = self.by_name.get(name + ".bias")
        return self.cut(y if bias is None else y + bias)

    def rms_norm(self, x, weight):
        epsilon, z = self.spec.get("norm_epsilon", 1e-5), wide(x)
        if self.parts["unit_offset_norm"]:
            weight = 1 + wide(weight)
        y = z * torch.rsqrt((z * z).mean(-1, keepdim=True) + epsilon) * weight
        return self.cut(y.to(x.dtype))

    def norm(self, name, x):
        epsilon, weight = self.spec.get("norm_epsilon", 1e-5), self.by_name[name + ".weight"]
        if self.parts["norm"] == "rms":
            return self.rms_norm(x, weight)
        z = wide(x)
        centred = z - z.mean(-1, keepdim=True)
        variance = (centred * centred).mean(-1, keepdim=True)
        y = centred * torch.rsqrt(variance + epsilon) * weight + self.by_name[name + ".bias"]
        return self.cut(y.to(x.dtype))

    def has_window(self, layer):
        return bool(self.spec.get("attention_window")) and int(layer) not in self.spec.get(
            "full_layers", ())

    def rope_of(self, layer):
        local = self.spec.get("rope_local_theta", 0)
        if local and self.has_window(layer):
            return {}, local
        return self.spec.get("rope", {}), self.spec.get("rope_theta", 10000.0)

    def frequencies(self, layer, size, length):
        """Of each pair of a head's `size` rotated elements, in sequences of `length` tokens."""
        rope, theta = self.rope_of(layer)
        kind, factor = rope.get("rope_type", "default"), rope.get("factor", 1.0)
        original = rope.get("original_max_position_embeddings", 0)
        i = torch.arange(size // 2, dtype=torch.float64)
        frequency = theta ** (-2 * i / size)
        if kind == "linear":
            return frequency / factor
        if kind == "longrope":
            scales = rope["long_factor" if length > original else "short_factor"]
            return frequency / torch.tensor(scales, dtype=torch.float64)
        if kind == "llama3":
            low, high = rope.get("low_freq_factor", 1.0), rope.get("high_freq_factor", 4.0)
            share = (original * frequency / (2 * math.pi) - low) / (high - low)
        elif kind == "yarn":
            low, high = (size * math.log(original / (2 * math.pi * rope.get(name, default)))
                         / (2 * math.log(theta))
                         for name, default in (("beta_fast", 32.0), ("beta_slow", 1.0)))
            if rope.get("truncate", True):
                low, high = math.floor(low), math.ceil(high)
            low, high = max(low, 0), min(high, size - 1)
            share = 1 - (i - low) / (high - low if high != low else 0.001)
        else:
            return frequency
        share = share.clamp(0, 1)
        return share * frequency + (1 - share) * frequency / factor

    def rotate(self, layer, x):
        """x: [batch, heads, positions, head_size]."""
        size = int(self.head_size * self.parts["rotary_fraction"])
        half = size // 2
        frequency = self.frequencies(layer, size, x.shape[2])
        angle = torch.arange(x.shape[2], dtype=torch.float64)[:, None] * frequency
        magnitude = self.rope_of(layer)[0].get("attention_factor", 1.0)
        cosine, sine = (magnitude * angle.cos()).to(x.dtype), (magnitude * angle.sin()).to(x.dtype)
        low, high, rest = x[..., :half], x[..., half:size], x[..., size:]
        turned = (low * cosine - high * sine, high * cosine + low * sine)
        return self.cut(torch.cat((*turned, rest), -1))

    def attention(self, layer, x):
        batch, length, _ = x.shape
        heads, kv_heads = self.spec["num_heads"], self.spec["num_kv_heads"]
        qkv = self.linear(layer + ".qkv", x)
        q, k, v = qkv.split([n * self.head_size for n in (heads, kv_heads, kv_heads)], -1)
        norms = [self.by_name.get(layer + name) for name in (".query_norm", ".key_norm")]
        if self.parts["norm_spans_heads"]:
            q, k = self.rms_norm(q, norms[0]), self.rms_norm(k, norms[1])
        q, k, v = (t.view(batch, length, -1, self.head_size).transpose(1, 2) for t in (q, k, v))
        if self.parts["query_key_norm"] and not self.parts["norm_spans_heads"]:
            q, k = self.rms_norm(q, norms[0]), self.rms_norm(k, norms[1])
        unrotated = self.spec.get("unrotated_layers", ())
        if self.parts["positions"] == "rotary" and int(layer) not in unrotated:
            q, k = self.rotate(layer, q), self.rotate(layer, k)
        k, v = (t.repeat_interleave(heads // kv_heads, 1) for t in (k, v))
        scores = q @ k.transpose(2, 3)
        scores = scores * (self.parts["attention_multiplier"] or 1 / math.sqrt(self.head_size))
        scores = self.capped(scores, self.parts["attention_softcap"])
        if self.objective == "next_token":
            position = torch.arange(length)
            distance = position[:, None] - position
            hidden = distance < 0
            if self.has_window(layer):
                hidden |= distance >= self.spec["attention_window"]
            scores = scores.masked_fill(hidden, -math.inf)
        out = (scores.softmax(-1) @ v).transpose(1, 2)
        out = self.cut(out.reshape(batch, length, heads * self.head_size))
        return self.linear(layer + ".projection", out)

    def feed_forward(self, layer, x):
        hidden = self.linear(layer + ".fc", x)
        if self.parts["gated"]:
            gate, up = hidden.chunk(2, -1)
            hidden = self.activation(gate) * up
        else:
            hidden = self.activation(hidden)
        return self.linear(layer + ".fc_projection", self.cut(hidden))

    def block(self, layer, x):
        kind = self.parts["block"]
        if kind == "post_norm":
            # The branch's gradient is rounded before that of the sum is added, and again after.
            x = self.norm(layer + ".norm1", self.cut(x + self.attention(layer, self.cut(x))))
            return self.norm(layer + ".norm2", self.cut(x + self.feed_forward(layer, self.cut(x))))
        if kind == "branch_norm":
            x = self.cut(x + self.norm(layer + ".norm1", self.attention(layer, self.cut(x))))
            fed = self.norm(layer + ".norm2", self.feed_forward(layer, self.cut(x)))
            return self.cut(x + fed)
        normed = self.norm(layer + ".norm1", x)
        attended = self.attention(layer, normed)
        if self.parts["shared_norm"]:
            # The gradient of the MLP's branch is rounded before attention's is added.
            fed = self.feed_forward(layer, self.cut(normed))
            return self.cut(x + self.cut(attended + fed))
        if kind == "parallel":
            if self.narrow is None:
                return x + attended + self.feed_forward(layer, self.norm(layer + ".norm2", x))
            # The sum of branches is stored, then that of the residual and it.
            fed = self.feed_forward(layer, self.norm(layer + ".norm2", x))
            return self.cut(x + self.cut(attended + fed))
        multiplier = self.parts["residual_multiplier"]
        if kind == "double_norm":
            attended = self.norm(layer + ".branch_norm1", attended)
        x = self.cut(x + self.times(attended, multiplier))
        fed = self.feed_forward(layer, self.norm(layer + ".norm2", x))
        if kind == "double_norm":
            fed = self.norm(layer + ".branch_norm2", fed)
        return self.cut(x + self.times(fed, multiplier))

    def logits(self, inputs):
        x = self.by_name["embedding"][inputs]
        if self.parts["positions"] == "learned":
            first = self.parts["position_offset"]
            x = x + self.by_name["positions"][first : first + inputs.shape[1]]
        if self.parts["token_types"]:
            x = x + self.by_name["types"][0]
        if self.parts["positions"] == "learned" or self.parts["token_types"]:
            x = self.cut(x)  # the sum, once
        x = self.scaled_embedding(x)
        if self.parts["block"] == "post_norm":
            x = self.norm("embedding_norm", x)
        for layer in range(self.spec["num_layers"]):
            x = self.block(str(layer), x)
        if self.parts["block"] != "post_norm":
            x = self.norm("final_norm", x)
        if self.masked:
            x = self.norm("transform_norm", self.activation(self.linear("transform", x)))
        if self.objective == "sequence_class":
            pool = ACTIVATIONS[POOLERS[self.spec["family"]]]
            x = self.cut(pool(self.linear("transform", x[:, 0])))
        # A tied table gets the head's gradient rounded, before the embedding's is added.
        head = self.by_name.get("head")
        head = self.cut(self.by_name["embedding"]) if head is None else head
        logits = x @ head.T
        if self.objective != "next_token":
            # What the bias adds to a sequence's scores of spans changes no loss.
            bias = self.by_name["head_bias"]
            logits = logits + (0 * bias if self.objective == "spans" else bias)
        logits = wide(self.cut(logits))
        return self.capped(logits / self.parts["logits_scaling"], self.parts["logits_softcap"])

    def labels(self, seed, step, batch, length):
        """[batch, …]: classes, or where spans begin and end."""
        if self.objective == "spans":
            return labels_of_step(seed, step, batch, 2, length)
        numbers = length if self.objective == "token_class" else 1
        return labels_of_step(seed, step, batch, numbers, self.head_rows)

    def loss(self, tokens, masked, labels):
        """tokens: one more than positions; masked: the positions with a target, for masked_token."""
        inputs, targets = tokens[:, :-1], tokens[:, 1:]
        if self.masked:
            targets = inputs.gather(1, masked)
            inputs = inputs.scatter(1, masked, self.spec["vocab_size"] - 1)
        logits = self.logits(inputs)
        if self.masked:
            logits = logits.gather(1, masked[..., None].expand(-1, -1, logits.shape[2]))
        elif self.objective != "next_token":
            targets = labels
        if self.objective == "spans":
            logits = logits.transpose(1, 2)  # a class is a position
        return torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]),
                                                 targets.flatten())


class LossScaler:
    """Section 6.1. `options`: the section fp16 of a DeepSpeed config, and zero_stage."""

    def __init__(self, options):
        self.fixed = options.get("loss_scale", 0)
        self.window = options.get("loss_scale_window", 1000)
        self.hysteresis = self.left = options.get("hysteresis", 2)
        self.refill = options.get("consecutive_hysteresis", False)
        self.minimum = options.get("min_loss_scale", 1)
        self.in_zero = options.get("zero_stage", 0) > 0
        self.scale = float(self.fixed or 2.0 ** options.get("initial_scale_power", 16))
        self.step, self.last_overflow = 0, -1

    def move(self, overflow):
        if self.fixed:
            return
        if overflow:
            self.last_overflow = self.step
            if self.in_zero and self.hysteresis != 1 and self.left != 1:
                self.left -= 1
            elif self.in_zero and self.scale == self.minimum:
                sys.exit(f"reference_step.py: overflow at the lowest loss scale, {self.minimum}")
            else:
                self.scale = max(self.scale / 2, self.minimum)
        else:
            quiet = self.step - self.last_overflow - 1
            rises = quiet > 0 and quiet % self.window == 0
            if self.refill or rises:
                self.left = self.hysteresis
            if rises:
                self.scale *= 2
        self.step += 1


class Optimizer:
    """Section 5, all of it; on fp32 master weights where parameters have 16 bits."""

    def __init__(self, parameters, training, narrow, scaler):
        self.parameters = parameters
        self.narrow = narrow
        self.scaler = scaler
        self.options = training["optimizer"]
        self.clip = training.get("gradient_clipping", 1.0)
        self.masters = [p.detach().float().clone() if narrow else p for p in parameters]
        self.offloaded = training.get("offload_optimizer", False)
        self.low_precision_master = narrow and training.get("low_precision_master", False)
        self.low_precision_moments = narrow and training.get("low_precision_moments", False)
        first = 0.0 if self.offloaded else self.options.get("initial_accumulator", 0.0)
        self.m = [torch.zeros_like(p) for p in self.masters]
        self.v = [torch.full_like(p, first) for p in self.masters]
        self.t = 0

    @torch.no_grad()
    def step(self):
        """Whether it made its update."""
        gradients = [p.grad.to(self.narrow).float() if self.narrow else p.grad
                     for p in self.parameters]
        for p in self.parameters:
            p.grad = None
        if self.scaler:
            overflow = not all(bool(g.isfinite().all()) for g in gradients)
            self.scaler.move(overflow)
            if overflow:
                return False
            # By the scale of the next step, as DeepSpeed does.
            gradients = [g / self.scaler.scale for g in gradients]
        self.update(gradients)
        self.keep_in_16_bits()
        if self.narrow:
            for p, master in zip(self.parameters, self.masters):
                p.copy_(master.to(self.narrow))
        return True

    def keep_in_16_bits(self):
        """Section 6.2."""
        kept = self.masters if self.low_precision_master else []
        kept = kept + self.m + self.v if self.low_precision_moments else kept
        for value in kept:
            value.copy_(value.to(self.narrow))

    def update(self, gradients):
        self.t += 1
        divisor = 1.0
        if self.clip > 0:
            norm = math.sqrt(sum(g.double().square().sum().item() for g in gradients))
            divisor = max(1.0, (norm + 1e-6) / self.clip)
        rule = getattr(self, self.options.get("kind", "adamw"))
        for w, m, v, gradient in zip(self.masters, self.m, self.v, gradients):
            rule(w, m, v, gradient / divisor)

    def adamw(self, w, m, v, g, decoupled=True):
        beta1, beta2 = self.betas()
        if decoupled:
            w -= self.rate() * self.decay() * w
        else:
            g = g + self.decay() * w
        m.mul_(beta1).add_((1 - beta1) * g)
        v.mul_(beta2).add_((1 - beta2) * g * g)
        m_hat, v_hat = m / (1 - beta1**self.t), v / (1 - beta2**self.t)
        w -= self.rate() * m_hat / (v_hat.sqrt() + self.options.get("epsilon", 1e-8))

    def adam(self, w, m, v, g):
        self.adamw(w, m, v, g, decoupled=False)

    def lion(self, w, m, _, g):
        beta1, beta2 = self.betas()
        direction = beta1 * m + (1 - beta1) * g
        at_zero = 1.0 if self.offloaded else -1.0
        sign = torch.where(direction == 0, at_zero, direction.sign())
        w -= self.rate() * (sign + self.decay() * w)
        m.mul_(beta2).add_((1 - beta2) * g)

    def sgd(self, w, m, _, g):
        momentum, dampening = self.options.get("momentum", 0), self.options.get("dampening", 0)
        g = g + self.decay() * w
        if momentum:
            m.mul_(momentum).add_((1 if self.t == 1 else 1 - dampening) * g)
            g = g + momentum * m if self.options.get("nesterov", False) else m
        w -= self.rate() * g

    def adagrad(self, w, _, v, g):
        fall = 0 if self.offloaded else self.options.get("learning_rate_decay", 0)
        decayed = g + self.decay() * w
        v.add_(decayed * decayed)
        rate = self.rate() / (1 + (self.t - 1) * fall)
        numerator = g if self.offloaded else decayed
        w -= rate * numerator / (v.sqrt() + self.options.get("epsilon", 1e-10))

    def rate(self):
        return self.options.get("learning_rate", 1e-3)

    def decay(self):
        return self.options.get("weight_decay", 0.0)

    def betas(self):
        return self.options.get("beta1", 0.9), self.options.get("beta2", 0.999)


def losses_of(case, dtype, plain):
    """The losses, and the numbers of the steps that left their update out (fp16)."""
    spec, training = case["model"], case["training"]
    seed = training.get("seed", 0)
    narrow = dtype if dtype in NARROW else None
    model = Model(spec, seed, torch.float32, narrow) if narrow and not plain else Model(
        spec, seed, dtype)
    scaler = LossScaler(training.get("fp16", {})) if dtype == torch.float16 else None
    optimizer = Optimizer(model.parameters, training, narrow, scaler)
    losses, skipped = [], []
    for step in range(training["steps"]):
        batch, length = training["global_batch"], training["sequence_length"]
        tokens = tokens_of_step(seed, step, batch, length, spec["vocab_size"])
        loss = model.loss(tokens, masked_positions(seed, step, batch, length),
                          model.labels(seed, step, batch, length))
        (loss * scaler.scale if scaler else loss).backward()
        if not optimizer.step():
            skipped.append(step)
        losses.append(loss.item())
    return losses, skipped


def compare(ours, theirs, tolerance):
    """The number of steps beyond the tolerance, each of them printed."""
    if not theirs:
        sys.exit("reference_step.py: no losses to compare with")
    beyond = 0
    for step, (reference, loss) in enumerate(zip(ours, theirs)):
        error = abs(loss - reference) / abs(reference)
        if not error <= tolerance:
            print(f"step {step}: {loss!r} instead of {reference!r}, {error:.1e} relative")
            beyond += 1
    return beyond


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("case", help="JSON file with `model` and `training`")
    parser.add_argument("--dtype", choices=("float64", "float32", "bfloat16", "float16"),
                        default="float64", help="16 bits: fp32 rounded where the step rounds")
    parser.add_argument("--plain", action="store_true",
                        help="16 bits: PyTorch's own 16-bit tensors instead")
    parser.add_argument("--write", metavar="FILE", help="write the case with its losses")
    parser.add_argument("--check", metavar="FILE", help="compare with the `losses` of this JSON file")
    parser.add_argument("--tolerance", type=float, default=1e-5, help="relative (default 1e-5)")
    options = parser.parse_args()

    with open(options.case, encoding="utf-8") as file:
        case = json.load(file)
    theirs = None
    if options.check:
        with open(options.check, encoding="utf-8") as file:
            theirs = json.load(file)["losses"]
        # Only what both have is compared.
        case["training"]["steps"] = min(case["training"]["steps"], len(theirs))
    losses, skipped = losses_of(case, getattr(torch, options.dtype), options.plain)
    if options.write:
        case["losses"] = losses
        if "fp16" in case["training"]:
            case["skipped_steps"] = skipped
        with open(options.write, "w", encoding="utf-8") as file:
            json.dump(case, file, indent=2)
            file.write("\n")
    if theirs is not None:
        if compare(losses, theirs, options.tolerance):
            sys.exit(1)
        print(f"{len(losses)} losses agree within {options.tolerance:g}")
    elif not options.write:
        print("\n".join(repr(loss) for loss in losses))


if __name__ == "__main__":
    main()
