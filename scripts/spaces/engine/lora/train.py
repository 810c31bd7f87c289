"""Fine-tunes a small LLaMA with LoRA: `deepspeed train.py --batch 4 --deepspeed_config ds_config.json`."""

import argparse

import deepspeed
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, LlamaConfig


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--local_rank", type=int, default=-1)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--steps", type=int, default=2000)
    deepspeed.add_config_arguments(parser)
    args = parser.parse_args()

    deepspeed.init_distributed()
    torch.manual_seed(0)
    config = LlamaConfig(vocab_size=2048, hidden_size=128, intermediate_size=384, num_hidden_layers=4,
                         num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128)
    base = AutoModelForCausalLM.from_config(config)  # stands for from_pretrained
    model = get_peft_model(base, LoraConfig(r=args.rank, lora_alpha=16, target_modules=["q_proj", "v_proj"]))
    parameters = [one for one in model.parameters() if one.requires_grad]
    engine, _, _, _ = deepspeed.initialize(args=args, model=model, model_parameters=parameters)

    random = torch.Generator().manual_seed(torch.distributed.get_rank())
    for step in range(args.steps):
        tokens = torch.randint(config.vocab_size, (args.batch, 64), generator=random).to(engine.device)
        loss = engine(input_ids=tokens, labels=tokens).loss
        engine.backward(loss)
        engine.step()
        if step % 100 == 0 and torch.distributed.get_rank() == 0:
            print(f"step {step}: loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
