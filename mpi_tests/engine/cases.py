"""A user's script for tests: a small training, and --case for what can go wrong or is unusual in it."""

import argparse
import atexit
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
import types
import weakref

import deepspeed
import torch
from torch.utils.data import DataLoader, TensorDataset

WIDTH = 16

parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", type=int, required=True)
parser.add_argument("--case", default="plain")
parser.add_argument("--batch", type=int, default=0)
parser.add_argument("--epochs", type=int, default=1000)
parser.add_argument("--samples", type=int, default=64)
parser.add_argument("--at", type=int, default=1)
parser.add_argument("--rank", type=int, default=-1)
parser.add_argument("--hidden", type=int, default=WIDTH)
deepspeed.add_config_arguments(parser)
args = parser.parse_args()
rank = int(os.environ["RANK"])
here = args.rank in (-1, rank)


def fail_here():
    if args.case == "exception":
        raise ValueError(f"case of rank {rank}")
    if args.case == "exit":
        sys.exit(7)
    if args.case == "sleep":
        while True:
            time.sleep(0.01)
    if args.case == "lonely":
        torch.distributed.all_reduce(torch.ones(1))
    if args.case == "memory":
        kept = [torch.ones(1 << 24) for _ in range(64)]
        assert kept
    if args.case == "subprocess":
        subprocess.run(["make-a-process", "now"], check=True)
    if args.case == "fork":
        os.fork()
    if args.case == "multiprocessing":
        multiprocessing.get_context("spawn").Process(target=print).start()


def disturb():
    """What scripts do to their process."""
    os.environ["DISTURBED"] = "1"
    os.environ["RANK"] = "99"
    os.chdir("/")
    sys.argv.append("disturbed")
    sys.path.insert(0, "/disturbed")
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(2)
    torch.manual_seed(random.randrange(1 << 30))
    atexit.register(lambda: open("/tmp/disturbed", "w"))
    signal.signal(signal.SIGUSR1, lambda *_: None)
    sys.stdout = open(os.devnull, "w")
    torch.__disturbed__ = True
    sys.modules["disturbed"] = types.ModuleType("disturbed")
    torch.__gone__ = weakref.proxy(torch.nn.Linear(1, 1))


def undisturbed():
    assert "DISTURBED" not in os.environ and os.getcwd() != "/"
    assert "disturbed" not in sys.argv and "/disturbed" not in sys.path
    assert torch.get_default_dtype() == torch.float32 and torch.get_num_threads() == 1
    assert signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL
    assert torch.__disturbed__
    print("undisturbed")


def main():
    if args.case == "early" and here:
        raise RuntimeError("before the engine")
    if args.case == "uninitialized":
        return
    if args.case == "undisturbed":
        undisturbed()
    if args.case == "writes":
        with open("written.txt", "w", encoding="utf-8") as file:
            file.write("by the script")
    if args.case == "fails_with_a_file":
        with open("left.txt", "w", encoding="utf-8"):
            raise ValueError("it has written")
    deepspeed.init_distributed()
    model = torch.nn.Sequential(torch.nn.Linear(WIDTH, args.hidden), torch.nn.ReLU(), torch.nn.Linear(args.hidden, 1))
    if args.hidden > WIDTH:  # much memory
        model.insert(2, torch.nn.Linear(args.hidden, args.hidden))
    engine, _, _, _ = deepspeed.initialize(args=args, model=model, model_parameters=model.parameters())
    if args.case == "twice":
        deepspeed.initialize(args=args, model=torch.nn.Linear(2, 2), config="own.json")
    if args.case == "disturb":
        disturb()
    scale = 1.0
    if args.case == "state":  # a library's module keeps it from run to run
        torch.__runs__ = getattr(torch, "__runs__", 0) + 1
        scale = float(torch.__runs__)
    generator = torch.Generator().manual_seed(rank)
    x = torch.randn(args.samples, WIDTH, generator=generator) * scale
    workers = 2 if args.case == "workers" else 0
    loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), num_workers=workers, persistent_workers=workers > 0,
                        batch_size=args.batch or engine.train_micro_batch_size_per_gpu())
    if args.case == "evaluates":
        engine.eval()
        with torch.no_grad():
            engine(x.float())
        engine.train()
    step = 0
    for _ in range(args.epochs):
        for inputs, labels in loader:
            dtype = next(engine.module.parameters()).dtype
            loss = torch.nn.functional.mse_loss(engine(inputs.to(dtype)), labels.to(dtype))
            if step == args.at and here:
                fail_here()
            if args.case == "boundaries":
                engine.set_gradient_accumulation_boundary(True)
            if args.case == "swallows":
                try:
                    engine.backward(loss)
                    engine.step()
                except BaseException:  # a script that goes on whatever happens
                    pass
            else:
                engine.backward(loss)
                engine.step()
            step += 1
        engine.save_checkpoint("checkpoints")


main()
