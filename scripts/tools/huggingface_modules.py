#!/usr/bin/env python3
"""Writes name and class of the modules with parameters of each family's Hugging Face model.

Needs PyTorch and transformers 5.23:

    python3 scripts/tools/huggingface_modules.py mpi_tests/unit/model/data/huggingface_modules.json
"""

import json
import sys

import torch
import transformers

MODELS = {"gpt2": "GPT2LMHeadModel", "llama": "LlamaForCausalLM", "mistral": "MistralForCausalLM",
          "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM", "phi3": "Phi3ForCausalLM",
          "opt": "OPTForCausalLM", "gpt_neox": "GPTNeoXForCausalLM", "bert": "BertForMaskedLM",
          "olmo2": "Olmo2ForCausalLM", "smollm3": "SmolLM3ForCausalLM",
          "granite": "GraniteForCausalLM", "gemma2": "Gemma2ForCausalLM",
          "gemma3_text": "Gemma3ForCausalLM", "falcon": "FalconForCausalLM"}
# Models of two layers whose modules are not those of the family's config without keys.
CONFIGS = [
    {"model_type": "falcon", "num_hidden_layers": 2, "new_decoder_architecture": True},
    {"model_type": "falcon", "num_hidden_layers": 2, "parallel_attn": False},
]


def modules_of(class_name, **options):
    kind = getattr(transformers, class_name)
    with torch.device("meta"):
        model = kind(kind.config_class(**(options or {"num_hidden_layers": 2})))
    return [[name, f"{type(module).__module__}.{type(module).__qualname__}"]
            for name, module in model.named_modules() if next(module.parameters(), None) is not None]


if __name__ == "__main__":
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        modules = {family: modules_of(name) for family, name in MODELS.items()}
        modules |= {json.dumps(config): modules_of(config.get("architectures", [MODELS[config["model_type"]]])[0],
                                                   **config) for config in CONFIGS}
        json.dump(modules, file, indent=0)
        file.write("\n")
