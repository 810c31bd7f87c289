"""Trains a small GPT-2 with Hugging Face's Trainer: `deepspeed train.py --deepspeed ds_config.json --output_dir out`."""

from dataclasses import dataclass, field

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, HfArgumentParser, Trainer, TrainingArguments


@dataclass
class ModelArguments:
    length: int = field(default=64)
    layers: int = field(default=4)


class Tokens(Dataset):
    """Stands for a tokenized corpus: each sample counts up from its own number."""

    def __init__(self, samples, length, vocabulary):
        self.samples, self.length, self.vocabulary = samples, length, vocabulary

    def __len__(self):
        return self.samples

    def __getitem__(self, index):
        tokens = (torch.arange(self.length) * (1 + index % 7) + index) % self.vocabulary
        return {"input_ids": tokens, "labels": tokens}


def main():
    model_arguments, arguments = HfArgumentParser((ModelArguments, TrainingArguments)).parse_args_into_dataclasses()
    config = GPT2Config(vocab_size=2048, n_positions=model_arguments.length, n_embd=128,
                        n_layer=model_arguments.layers, n_head=4)
    trainer = Trainer(model=GPT2LMHeadModel(config), args=arguments,
                      train_dataset=Tokens(4096, model_arguments.length, config.vocab_size))
    trainer.train()
    trainer.save_model()


if __name__ == "__main__":
    main()
