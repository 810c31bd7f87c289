"""Trains a small GPT-2 with DeepSpeed: `deepspeed train.py --deepspeed_config ds_config.json`."""

import argparse

import deepspeed
import torch
from torch.utils.data import DataLoader, Dataset, DistributedSampler
from transformers import GPT2Config, GPT2LMHeadModel


class Tokens(Dataset):
    """Stands for a tokenized corpus: each sample counts up from its own number."""

    def __init__(self, samples, length, vocabulary):
        self.samples, self.length, self.vocabulary = samples, length, vocabulary

    def __len__(self):
        return self.samples

    def __getitem__(self, index):
        return (torch.arange(self.length) * (1 + index % 7) + index) % self.vocabulary


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--local_rank", type=int, default=-1)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=10)
    deepspeed.add_config_arguments(parser)
    args = parser.parse_args()

    deepspeed.init_distributed()
    config = GPT2Config(vocab_size=2048, n_positions=args.length, n_embd=128, n_layer=4, n_head=4)
    model = GPT2LMHeadModel(config)
    engine, _, _, _ = deepspeed.initialize(args=args, model=model, model_parameters=model.parameters())

    data = Tokens(2048, args.length, config.vocab_size)
    sampler = DistributedSampler(data, shuffle=True)
    loader = DataLoader(data, batch_size=engine.train_micro_batch_size_per_gpu(), sampler=sampler, drop_last=True)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for tokens in loader:
            tokens = tokens.to(engine.device)
            loss = engine(input_ids=tokens, labels=tokens).loss
            engine.backward(loss)
            engine.step()
        engine.save_checkpoint("checkpoints", tag=f"epoch{epoch}")


if __name__ == "__main__":
    main()
