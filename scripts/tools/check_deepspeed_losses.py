#!/usr/bin/env python3
"""Losses that dstune-mpi measured against those of the same training under DeepSpeed.

Needs DeepSpeed 0.19.6 with PyTorch and Hugging Face transformers; no GPU. Every experiment in the results
folders is trained again, on as many ranks (gloo) as it had:

    mpirun -np 2 build/release/dstune-mpi --results-dir DIR space.json
    python3 -m torch.distributed.run --standalone --nproc_per_node 2 \\
        scripts/tools/check_deepspeed_losses.py case.json DIR …

case.json holds `model` as space.json's `dstune.model`, written out, and `training` with `sequence_length`
(docs/inside/reference-step.md, section 8).
"""
import argparse
import copy
import json
import logging
import math
import os
import pathlib
import sys

sys.dont_write_bytecode = True  # nothing beside the scripts
os.environ.setdefault("DS_ACCELERATOR", "cpu")
import check_families
import reference_step

try:
    import deepspeed
    import torch
except ImportError as error:
    sys.exit(f"check_deepspeed_losses.py needs DeepSpeed: {error}")

# DeepSpeed's own bf16 and fp16 run through PyTorch's 16-bit kernels, which round elsewhere.
TOLERANCES = {torch.float32: 1e-5, torch.bfloat16: 1e-3, torch.float16: 1e-3}


def dtype_of(config):
    for section, dtype in (("bf16", torch.bfloat16), ("fp16", torch.float16)):
        if (config.get(section) or {}).get("enabled"):
            return dtype
    return torch.float32


def loss_of(engine, model, tokens, masked):
    """The mean over the targets of a micro-batch."""
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    if model.masked:
        targets = inputs.gather(1, masked)
        inputs = inputs.scatter(1, masked, model.spec["vocab_size"] - 1)
    logits = engine(input_ids=inputs, attention_mask=torch.ones_like(inputs)).logits
    if model.masked:
        logits = logits.gather(1, masked[..., None].expand(-1, -1, logits.shape[2]))
    return torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), targets.flatten())


@torch.no_grad()
def undo_first_update(engine):
    """Stage 0's wrappers of 16-bit training make an update with gradients of zero when they are built. It
    decays the master weights and counts as the first; dstune-mpi leaves it out, so that stages agree.
    They divide gradients by the loss scale, too, though engine.backward multiplies the losses of ZeRO's
    optimizers alone: with any scale but 1 nothing is clipped."""
    wrapper = engine.optimizer
    if type(wrapper).__name__ == "FP16_Optimizer":
        masters = zip(wrapper.fp32_groups_flat, wrapper.fp16_groups_flat)
    elif type(wrapper).__name__ == "FP16_UnfusedOptimizer":
        masters = zip(sum(wrapper.fp32_groups, []), sum(wrapper.fp16_groups, []))
    else:
        return
    wrapper.loss_scale_config.cur_scale = 1
    for master, parameter in masters:
        master.copy_(parameter)
    basic = wrapper.optimizer
    if isinstance(basic, torch.optim.Adagrad):
        for state in basic.state.values():
            state["step"].zero_()
            state["sum"].fill_(basic.defaults["initial_accumulator_value"])
    else:
        basic.state.clear()
        for group in basic.param_groups:
            group.pop("step", None)


def train(case, config, steps):
    """The losses of a training, on every rank."""
    seed, length = case["training"].get("seed", 0), case["training"]["sequence_length"]
    model = reference_step.Model(case["model"], seed, torch.float32)
    module, problems = check_families.module_of(model, torch.float32)
    if problems:
        raise SystemExit("\n".join(problems))
    if model.objective in check_families.HEADS:
        raise SystemExit("losses of classes and spans are not compared")
    module.train()  # nothing drops out
    config = copy.deepcopy(config)
    config.pop("autotuning", None)
    engine, *_ = deepspeed.initialize(model=module, config=config,
                                      model_parameters=list(module.parameters()))
    undo_first_update(engine)
    rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
    micro, micro_steps = (engine.train_micro_batch_size_per_gpu(),
                          engine.gradient_accumulation_steps())
    losses = []
    for step in range(steps):
        batch = micro * micro_steps * ranks
        tokens = reference_step.tokens_of_step(seed, step, batch, length, case["model"]["vocab_size"])
        masked = reference_step.masked_positions(seed, step, batch, length)
        total = torch.zeros((), dtype=torch.float64)
        for number in range(micro_steps):
            first = (number * ranks + rank) * micro
            loss = loss_of(engine, model, tokens[first : first + micro], masked[first : first + micro])
            total += loss.detach().double() / micro_steps
            engine.backward(loss)
            engine.step()
        torch.distributed.all_reduce(total)
        losses.append(total.item() / ranks)
    wrapper = type(engine.optimizer).__name__
    basic = type(engine.basic_optimizer).__name__
    engine.destroy()
    return losses, f"{wrapper} of {basic}"


def check(case, folder, most_steps, tolerance):
    """Whether the experiment in the folder agrees; None where it has nothing to compare."""
    try:
        config = json.loads((folder / "ds_config.json").read_text(encoding="utf-8"))
        metrics = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    if metrics["status"] != "ok":
        return None
    ours = metrics["losses"][:most_steps]
    theirs, what = train(case, config, len(ours))
    errors = [abs(mine - their) / abs(their) for mine, their in zip(ours, theirs)]
    worst = max(range(len(errors)), key=errors.__getitem__)
    limit = tolerance or TOLERANCES[dtype_of(config)]
    agrees = math.isfinite(errors[worst]) and errors[worst] <= limit
    if torch.distributed.get_rank() == 0:
        print(f"{folder.name}: {what}, {len(ours)} losses, {errors[worst]:.1e} at step {worst}"
              f"{'' if agrees else f', more than {limit:g}: {ours[worst]!r} here, {theirs[worst]!r}'}",
              flush=True)
    return agrees


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("case", help="JSON file with `model` and `training`")
    parser.add_argument("results", nargs="+", type=pathlib.Path, help="results folders of dstune-mpi")
    parser.add_argument("--steps", type=int, default=20, help="at most so many (default 20)")
    parser.add_argument("--tolerance", type=float,
                        help="relative (default 1e-5 in fp32, 1e-3 in 16 bits)")
    options = parser.parse_args()
    deepspeed.utils.logger.setLevel(logging.ERROR)
    torch.set_num_threads(1)
    deepspeed.init_distributed(dist_backend="gloo", verbose=False)
    case = json.loads(pathlib.Path(options.case).read_text(encoding="utf-8"))
    verdicts = [check(case, folder, options.steps, options.tolerance)
                for results in options.results for folder in sorted(results.iterdir())
                if folder.is_dir()]
    compared = [verdict for verdict in verdicts if verdict is not None]
    if not compared:
        sys.exit("check_deepspeed_losses.py: no experiment to compare")
    sys.exit(0 if all(compared) else 1)


if __name__ == "__main__":
    main()
