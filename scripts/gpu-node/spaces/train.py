#!/usr/bin/env python3
"""Trains GPT-2 of a config.json under DeepSpeed, on random tokens: what own.json tunes.

    deepspeed train.py --deepspeed_config ds_config.json [--model gpt2-medium.config.json] [--tokens 1024]
"""
import argparse
import json
import os
import pathlib

import deepspeed
import torch
import transformers


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default=pathlib.Path(__file__).with_name("gpt2-medium.config.json"))
    parser.add_argument("--tokens", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--recompute", choices=["none", "block"],
                        default=os.environ.get("DSTUNE_ACTIVATION_RECOMPUTE", "none"))
    parser.add_argument("--local_rank", type=int, default=0)
    deepspeed.add_config_arguments(parser)
    options = parser.parse_args()

    sizes = json.loads(pathlib.Path(options.model).read_text(encoding="utf-8"))
    config = transformers.AutoConfig.for_model(sizes.pop("model_type"), **sizes)
    model = transformers.AutoModelForCausalLM.from_config(config)
    if options.recompute == "block":
        model.gradient_checkpointing_enable()
    model.train()
    engine, *_ = deepspeed.initialize(args=options, model=model, model_parameters=model.parameters())
    shape = engine.train_micro_batch_size_per_gpu(), options.tokens
    for _ in range(options.steps * engine.gradient_accumulation_steps()):
        tokens = torch.randint(config.vocab_size, shape, device=engine.device)
        engine.backward(engine(input_ids=tokens, labels=tokens).loss)
        engine.step()


if __name__ == "__main__":
    main()
