"""Trains a small mixture of experts by a function: dstune-mpi calls make() for each configuration."""

import deepspeed
import torch
from deepspeed.moe.layer import MoE
from torch import nn

WIDTH, VOCABULARY, LENGTH = 128, 1024, 32


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(WIDTH, 4, batch_first=True)
        expert = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))
        self.experts = MoE(WIDTH, expert, num_experts=4, ep_size=1, k=1)
        self.norms = nn.ModuleList([nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)])

    def forward(self, x):
        y = self.norms[0](x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        y, auxiliary, _ = self.experts(self.norms[1](x))
        return x + y, auxiliary


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList([Block() for _ in range(2)])
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens):
        x, balance = self.embedding(tokens), 0.0
        for block in self.blocks:
            x, auxiliary = block(x)
            balance = balance + auxiliary
        return self.head(x), balance


def batch(micro_batch, seed):
    return torch.randint(VOCABULARY, (micro_batch, LENGTH), generator=torch.Generator().manual_seed(seed))


def loss(model, tokens):
    logits, balance = model(tokens)
    return nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten()) + 0.01 * balance


def make(ds_config, seed):
    deepspeed.init_distributed()
    torch.manual_seed(seed)
    return Model(), batch, loss
