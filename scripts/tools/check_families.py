#!/usr/bin/env python3
"""The model formulas of reference_step.py against Hugging Face transformers' own, in float64."""
import argparse
import json
import sys

sys.dont_write_bytecode = True  # nothing beside the scripts
import reference_step

try:
    import torch
    import transformers
except ImportError as error:
    sys.exit(f"check_families.py needs PyTorch and transformers: {error}")

# transformers' names of our activations.
ACTIVATIONS = {"gelu_tanh": "gelu_new", "gelu": "gelu", "relu": "relu", "silu": "silu"}


GEMMA_NAMES = ("input_layernorm", "self_attn.{}_proj", "self_attn.o_proj",
               "pre_feedforward_layernorm", "mlp.{}_proj", "mlp.down_proj")


def config_of(model):
    spec, parts, family = model.spec, model.parts, model.spec["family"]
    common = {"vocab_size": spec["vocab_size"], "tie_word_embeddings": spec["tie_embeddings"],
              "attn_implementation": "eager", "pad_token_id": None, "bos_token_id": None,
              "eos_token_id": None}
    if family == "gpt2":
        return transformers.GPT2Config(
            n_embd=spec["hidden_size"], n_layer=spec["num_layers"], n_head=spec["num_heads"],
            n_inner=spec["intermediate_size"], n_positions=spec["max_positions"],
            activation_function=ACTIVATIONS[parts["activation"]],
            layer_norm_epsilon=spec["norm_epsilon"], resid_pdrop=0, embd_pdrop=0, attn_pdrop=0,
            **common)
    common |= {"hidden_size": spec["hidden_size"], "num_hidden_layers": spec["num_layers"],
               "num_attention_heads": spec["num_heads"],
               "max_position_embeddings": spec["max_positions"]}
    if family == "opt":
        return transformers.OPTConfig(
            ffn_dim=spec["intermediate_size"], word_embed_proj_dim=spec["hidden_size"], dropout=0,
            activation_function=ACTIVATIONS[parts["activation"]], enable_bias=parts["qkv_bias"],
            **common)
    common |= {"intermediate_size": spec["intermediate_size"],
               "hidden_act": ACTIVATIONS[parts["activation"]]}
    if family == "bert":
        return transformers.BertConfig(
            layer_norm_eps=spec["norm_epsilon"], hidden_dropout_prob=0,
            attention_probs_dropout_prob=0, type_vocab_size=parts["token_types"], **common)
    rope = {"rope_type": "default", "rope_theta": spec["rope_theta"],
            "partial_rotary_factor": parts["rotary_fraction"]} | spec.get("rope", {})
    if family == "falcon":
        del common["intermediate_size"], common["hidden_act"]
        is_new = spec["num_kv_heads"] not in (1, spec["num_heads"]) or (
            parts["block"] == "parallel" and not parts["shared_norm"])
        return transformers.FalconConfig(
            layer_norm_epsilon=spec["norm_epsilon"], rope_parameters=rope,
            ffn_hidden_size=spec["intermediate_size"], bias=parts["qkv_bias"],
            activation=ACTIVATIONS[parts["activation"]], num_kv_heads=spec["num_kv_heads"],
            multi_query=spec["num_kv_heads"] == 1, new_decoder_architecture=is_new,
            parallel_attn=parts["block"] == "parallel",
            num_ln_in_parallel_attn=1 if parts["shared_norm"] else None, **common)
    if family == "gpt_neox":
        return transformers.GPTNeoXConfig(
            layer_norm_eps=spec["norm_epsilon"], rope_parameters=rope,
            use_parallel_residual=parts["block"] == "parallel",
            attention_bias=parts["qkv_bias"], **common)
    common |= {"num_key_value_heads": spec["num_kv_heads"], "rms_norm_eps": spec["norm_epsilon"],
               "head_dim": model.head_size, "rope_parameters": rope}
    if family in ("llama", "qwen3", "olmo2", "smollm3", "granite"):
        common["attention_bias"] = parts["projection_bias"]
    if family in ("llama", "smollm3", "granite"):
        common["mlp_bias"] = parts["mlp_bias"]
    if family == "smollm3":
        flat = spec.get("unrotated_layers", [])
        common["no_rope_layers"] = [int(layer not in flat) for layer in range(spec["num_layers"])]
    if family == "granite":
        common |= {name: parts[name] for name in ("embedding_multiplier", "residual_multiplier",
                                                  "attention_multiplier", "logits_scaling")}
    window, full = spec.get("attention_window"), spec.get("full_layers", [])
    if family in ("mistral", "phi3"):
        common["sliding_window"] = window
    if family in ("gemma2", "gemma3_text"):
        common |= {"hidden_activation": "gelu_pytorch_tanh", "sliding_window": window,
                   "query_pre_attn_scalar": round(parts["attention_multiplier"] ** -2),
                   "attn_logit_softcapping": parts["attention_softcap"] or None,
                   "final_logit_softcapping": parts["logits_softcap"] or None}
        del common["hidden_act"]
    if family == "gemma3_text":
        local = {"rope_type": "default", "rope_theta": spec["rope_local_theta"]}
        common["rope_parameters"] = {"full_attention": rope, "sliding_attention": local}
    if family in ("qwen2", "qwen3", "smollm3", "gemma2", "gemma3_text") and window:
        kinds = ("sliding_attention", "full_attention")
        common |= {"sliding_window": window, "use_sliding_window": True,
                   "layer_types": [kinds[layer in full] for layer in range(spec["num_layers"])]}
    if family == "phi3" and "original_max_position_embeddings" in rope:
        common["original_max_position_embeddings"] = rope["original_max_position_embeddings"]
    return transformers.CONFIG_MAPPING[family](**common)


def without_fp32():
    """transformers computes norms, rotations and softmax in fp32 whatever the model's type is: from
    here on what it calls fp32 is double, so that formulas are compared and not roundings."""
    torch.set_default_dtype(torch.float64)
    torch.float32 = torch.float = torch.float64
    torch.Tensor.float = torch.Tensor.double


def parts_of(model, layer):
    """{name inside a block: value}: ours, taken apart as the family's modules have them."""
    family, d = model.spec["family"], model.head_size
    heads, kv_heads = model.spec["num_heads"], model.spec["num_kv_heads"]
    names = {
        "gpt2": ("ln_1", "attn.c_attn", "attn.c_proj", "ln_2", "mlp.c_fc", "mlp.c_proj"),
        "opt": ("self_attn_layer_norm", "self_attn.{}_proj", "self_attn.out_proj",
                "final_layer_norm", "fc1", "fc2"),
        "gpt_neox": ("input_layernorm", "attention.query_key_value", "attention.dense",
                     "post_attention_layernorm", "mlp.dense_h_to_4h", "mlp.dense_4h_to_h"),
        "bert": ("attention.output.LayerNorm", "attention.self.{}", "attention.output.dense",
                 "output.LayerNorm", "intermediate.dense", "output.dense"),
        "phi3": ("input_layernorm", "self_attn.qkv_proj", "self_attn.o_proj",
                 "post_attention_layernorm", "mlp.gate_up_proj", "mlp.down_proj"),
        "olmo2": ("post_attention_layernorm", "self_attn.{}_proj", "self_attn.o_proj",
                  "post_feedforward_layernorm", "mlp.{}_proj", "mlp.down_proj"),
        "gemma2": GEMMA_NAMES, "gemma3_text": GEMMA_NAMES,
        "falcon": ("input_layernorm", "self_attention.query_key_value", "self_attention.dense",
                   "post_attention_layernorm", "mlp.dense_h_to_4h", "mlp.dense_4h_to_h"),
    }.get(family, ("input_layernorm", "self_attn.{}_proj", "self_attn.o_proj",
                   "post_attention_layernorm", "mlp.{}_proj", "mlp.down_proj"))
    if family == "falcon" and model.parts["block"] == "parallel" and not model.parts["shared_norm"]:
        names = ("ln_attn", *names[1:3], "ln_mlp", *names[4:])
    found = {}
    for ours, theirs in zip(("norm1", "qkv", "projection", "norm2", "fc", "fc_projection"), names):
        for suffix in (".weight", ".bias"):
            value = model.by_name.get(f"{layer}.{ours}{suffix}")
            if value is None:
                continue
            if family == "gpt2" and value.dim() == 2:
                value = value.T
            if family == "gpt_neox" and ours == "qkv":
                # Their rows go head by head: q, k, v of each.
                value = value.view(3, heads, d, -1).transpose(0, 1).reshape(value.shape)
            if family == "falcon" and ours == "qkv":
                # The heads that share keys lie before these, and behind them their values.
                q, k, v = (part.view(kv_heads, -1, d, *value.shape[1:]) for part in
                           value.split((heads * d, kv_heads * d, kv_heads * d)))
                value = torch.cat((q, k, v), 1).reshape(value.shape)
            if "{}" not in theirs:
                found[theirs + suffix] = value
                continue
            if ours == "qkv":
                words = ("query", "key", "value") if family == "bert" else ("q", "k", "v")
                sizes = (heads * d, kv_heads * d, kv_heads * d)
            else:
                words, sizes = ("gate", "up"), (value.shape[0] // 2,) * 2
            for word, piece in zip(words, value.split(sizes)):
                found[theirs.format(word) + suffix] = piece
    if model.parts["block"] == "double_norm":
        found["post_attention_layernorm.weight"] = model.by_name[layer + ".branch_norm1.weight"]
        found["post_feedforward_layernorm.weight"] = model.by_name[layer + ".branch_norm2.weight"]
    if model.parts["query_key_norm"]:
        found["self_attn.q_norm.weight"] = model.by_name[layer + ".query_norm"]
        found["self_attn.k_norm.weight"] = model.by_name[layer + ".key_norm"]
    return found


def weights_of(model):
    """All values under transformers' names."""
    family = model.spec["family"]
    blocks = {"gpt2": "transformer.h", "opt": "model.decoder.layers", "bert": "bert.encoder.layer",
              "gpt_neox": "gpt_neox.layers", "falcon": "transformer.h"}.get(family, "model.layers")
    ends = {
        "gpt2": {"embedding": "transformer.wte.weight", "positions": "transformer.wpe.weight",
                 "final_norm": "transformer.ln_f", "head": "lm_head.weight"},
        "opt": {"embedding": "model.decoder.embed_tokens.weight",
                "positions": "model.decoder.embed_positions.weight",
                "final_norm": "model.decoder.final_layer_norm", "head": "lm_head.weight"},
        "gpt_neox": {"embedding": "gpt_neox.embed_in.weight",
                     "final_norm": "gpt_neox.final_layer_norm", "head": "embed_out.weight"},
        "bert": {"embedding": "bert.embeddings.word_embeddings.weight",
                 "positions": "bert.embeddings.position_embeddings.weight",
                 "types": "bert.embeddings.token_type_embeddings.weight",
                 "embedding_norm": "bert.embeddings.LayerNorm",
                 "transform": "cls.predictions.transform.dense",
                 "transform_norm": "cls.predictions.transform.LayerNorm",
                 "head": "cls.predictions.decoder.weight", "head_bias": "cls.predictions.bias"},
        "falcon": {"embedding": "transformer.word_embeddings.weight",
                   "final_norm": "transformer.ln_f", "head": "lm_head.weight"},
    }.get(family, {"embedding": "model.embed_tokens.weight", "final_norm": "model.norm",
                   "head": "lm_head.weight"})
    found = {}
    for ours, theirs in ends.items():
        for suffix in ("", ".weight", ".bias"):
            if ours + suffix in model.by_name:
                found[theirs + suffix] = model.by_name[ours + suffix]
    for layer in range(model.spec["num_layers"]):
        for name, value in parts_of(model, str(layer)).items():
            found[f"{blocks}.{layer}.{name}"] = value
    return found


@torch.no_grad()
def module_of(model, dtype):
    """(transformers' module with the model's weights, what does not fit)."""
    config = config_of(model)
    kind = (transformers.AutoModelForMaskedLM if model.masked
            else transformers.AutoModelForCausalLM)
    theirs = kind.from_config(config).to(dtype).eval()
    own = dict(theirs.named_parameters())
    ours = weights_of(model)
    if "lm_head.weight" in own and "embed_out.weight" in ours:
        ours["lm_head.weight"] = ours.pop("embed_out.weight")  # gpt_neox, from transformers 5 on
    problems = [f"no parameter {name} there" for name in ours.keys() - own.keys()]
    problems += [f"no parameter {name} here" for name in own.keys() - ours.keys()]
    if not problems:
        for name, value in ours.items():
            own[name].copy_(value)
    return theirs, problems


@torch.no_grad()
def check(case):
    model = reference_step.Model(case["model"], 1, torch.float64)
    generator = torch.Generator().manual_seed(1)
    for value in model.parameters:
        # No bias of zero and no norm of one, lest a wrong place of them goes unseen.
        value += 0.1 * torch.randn(value.shape, generator=generator, dtype=value.dtype)
    theirs, problems = module_of(model, torch.float64)
    if problems:
        return problems
    own = dict(theirs.named_parameters())
    counts = (sum(p.numel() for p in model.parameters), sum(p.numel() for p in own.values()))
    if counts[0] != counts[1]:
        problems.append(f"{counts[0]} parameters here, {counts[1]} there")
    length = case["training"]["sequence_length"]
    tokens = reference_step.tokens_of_step(0, 0, 2, length, case["model"]["vocab_size"])
    tokens = tokens[:, :-1].clamp(min=2)  # no number that stands for padding
    expected = theirs(input_ids=tokens, attention_mask=torch.ones_like(tokens)).logits
    error = (model.logits(tokens) - expected).abs().max().item() / expected.abs().max().item()
    if not error < 1e-12:
        problems.append(f"logits differ by {error:.1e}")
    print(f"{case['model']['family']}: {counts[1]} parameters, logits differ by {error:.1e}")
    return problems


def check_losses(case, steps):
    """Trains transformers' module in fp32 from the case's weights, on its tokens, with its Adam."""
    spec, training = case["model"], case["training"]
    model = reference_step.Model(spec, training["seed"], torch.float32)
    theirs, problems = module_of(model, torch.float32)
    if problems:
        return problems
    parameters = list({id(p): p for p in theirs.parameters()}.values())
    optimizer = reference_step.Optimizer(parameters, training, None, None)
    batch, length = training["global_batch"], training["sequence_length"]
    worst = 0.0
    for step in range(steps):
        tokens = reference_step.tokens_of_step(training["seed"], step, batch, length,
                                               spec["vocab_size"])
        logits = theirs(input_ids=tokens[:, :-1],
                        attention_mask=torch.ones_like(tokens[:, :-1])).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        worst = max(worst, abs(loss.item() / case["losses"][step] - 1))
    print(f"{spec['family']}: {steps} losses in fp32 differ by {worst:.1e}")
    return [] if worst <= 1e-5 else [f"losses differ by {worst:.1e}"]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("case", nargs="+", help="JSON files with `model` and `training`")
    parser.add_argument("--losses", type=int, metavar="STEPS",
                        help="train so many steps in fp32 instead; compare with the files' losses")
    options = parser.parse_args()
    if not options.losses:
        without_fp32()
    bad = 0
    for path in options.case:
        with open(path, encoding="utf-8") as file:
            case = json.load(file)
            for problem in check_losses(case, options.losses) if options.losses else check(case):
                print(f"{path}: {problem}")
                bad += 1
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
