"""A user's script for tests: one small language model, trained by --how in the ways that people train."""

import argparse
import os

import deepspeed
import torch
from accelerate import Accelerator, DeepSpeedPlugin
from accelerate.utils import DummyOptim, DummyScheduler
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

parser = argparse.ArgumentParser()
parser.add_argument("--how", default="plain")
parser.add_argument("--case", default="")
parser.add_argument("--length", type=int, default=0)
parser.add_argument("--deepspeed_config", default="")
args = parser.parse_args()
length = args.length or int(os.environ["DSTUNE_SEQUENCE_LENGTH"])


def language_model():
    model = GPT2LMHeadModel(GPT2Config(vocab_size=128, n_positions=256, n_embd=32, n_layer=2, n_head=2))
    if args.case == "always":
        model.gradient_checkpointing_enable()
    return model


class Tokens(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        tokens = (torch.arange(length) + index) % 128
        return {"input_ids": tokens, "labels": tokens}


def trainer():
    """The script makes its arguments itself, as TRL's examples do."""
    arguments = TrainingArguments(output_dir="out", deepspeed=args.deepspeed_config, max_steps=100,
                                  per_device_train_batch_size=7)
    made = Trainer(model=language_model(), args=arguments, train_dataset=Tokens())
    if args.case == "changes":
        made.accelerator.state.deepspeed_plugin.deepspeed_config["zero_optimization"]["stage"] = 1
    if args.case == "adds":
        made.accelerator.state.deepspeed_plugin.deepspeed_config["prescale_gradients"] = False
    made.train()


def loop():
    cpu = {"cpu": True} if args.case == "cpu" else {}
    accelerator = Accelerator(deepspeed_plugin=DeepSpeedPlugin(hf_ds_config=args.deepspeed_config), **cpu)
    model = language_model()
    data = torch.utils.data.DataLoader(Tokens(), batch_size=2)
    optimizer = DummyOptim(model.parameters(), lr=3e-4)
    parts = [model, optimizer, data]
    if args.case == "schedule":
        parts.append(DummyScheduler(optimizer, total_num_steps=50, warmup_num_steps=3))
    model, optimizer, data, *_ = accelerator.prepare(*parts)
    while True:
        for batch in data:
            with accelerator.accumulate(model):
                accelerator.backward(model(**batch).loss)
                optimizer.step()
                optimizer.zero_grad()


def plain():
    """Neither the Trainer nor accelerate; what DSTUNE_ACTIVATION_RECOMPUTE says is ignored but for `obeys`."""
    model = language_model()
    handed = {"model_parameters": model.parameters()}
    if args.case == "optimizer":
        handed = {"optimizer": torch.optim.SGD(model.parameters(), lr=0.1)}
    if args.case == "rate":
        handed = {"optimizer": torch.optim.AdamW(model.parameters(), lr=0.1)}
    config = args.deepspeed_config
    if args.case == "fills":
        config = {"optimizer": {"params": {"lr": 1e-3, "weight_decay": 0.0}}}
    if args.case == "hidden":  # no model of transformers any more, for who looks at it
        model = torch.nn.ModuleDict({"inner": model})
        model.forward = lambda **batch: model["inner"](**batch)
    engine, *_ = deepspeed.initialize(model=model, config=config, **handed)
    loader = torch.utils.data.DataLoader(Tokens(), batch_size=engine.train_micro_batch_size_per_gpu())
    step = 0
    while True:
        for batch in loader:
            if args.case == "pads":
                step += 1
                batch = {name: value[:, : length - step % 3 * 4 - 2] for name, value in batch.items()}
            engine.backward(engine(**batch).loss)
            engine.step()


{"trainer": trainer, "loop": loop, "plain": plain}[args.how]()
