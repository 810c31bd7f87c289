"""A small GPT-2 of our own, with the modules of transformers' one, which need not be there.

The job trains it for a few steps to learn what DeepSpeed's work costs on this machine.
"""

import math
import sys


def make(shape):
    """The model of the object `own_model` in the command "build"; its call returns the loss."""
    torch = sys.modules["torch"]
    nn = torch.nn
    functional = torch.nn.functional
    width, heads = shape["hidden_size"], shape["num_heads"]

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.c_attn = nn.Linear(width, 3 * width)
            self.c_proj = nn.Linear(width, width)

        def forward(self, x):
            batch, length, _ = x.shape
            parts = (part.view(batch, length, heads, width // heads).transpose(1, 2)
                     for part in self.c_attn(x).split(width, dim=2))
            mixed = functional.scaled_dot_product_attention(*parts, is_causal=True)
            return self.c_proj(mixed.transpose(1, 2).reshape(batch, length, width))

    class Mlp(nn.Module):
        def __init__(self):
            super().__init__()
            self.c_fc = nn.Linear(width, shape["intermediate_size"])
            self.c_proj = nn.Linear(shape["intermediate_size"], width)

        def forward(self, x):
            return self.c_proj(functional.gelu(self.c_fc(x), approximate="tanh"))

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln_1 = nn.LayerNorm(width)
            self.attn = Attention()
            self.ln_2 = nn.LayerNorm(width)
            self.mlp = Mlp()

        def forward(self, x):
            x = x + self.attn(self.ln_1(x))
            return x + self.mlp(self.ln_2(x))

    class Transformer(nn.Module):
        def __init__(self):
            super().__init__()
            self.wte = nn.Embedding(shape["vocab_size"], width)
            self.wpe = nn.Embedding(shape["max_positions"], width)
            self.h = nn.ModuleList(Block() for _ in range(shape["num_layers"]))
            self.ln_f = nn.LayerNorm(width)

        def forward(self, tokens):
            x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1], device=tokens.device))
            for block in self.h:
                x = block(x)
            return self.ln_f(x)

    class LanguageModel(nn.Module):
        def __init__(self):
            super().__init__()
            self.transformer = Transformer()
            self.lm_head = nn.Linear(width, shape["vocab_size"], bias=False)
            self.lm_head.weight = self.transformer.wte.weight

        def forward(self, tokens):
            logits = self.lm_head(self.transformer(tokens)).float()
            return functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())

    model = LanguageModel()
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=1 / math.sqrt(parameter.shape[-1]))
    return model
