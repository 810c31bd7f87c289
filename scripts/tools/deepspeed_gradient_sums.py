#!/usr/bin/env python3
"""Writes what DeepSpeed's optimizers read where gradients are added up in fp32, as test vectors.

Needs DeepSpeed with PyTorch and Hugging Face transformers; no GPU. It runs itself on one rank and on
two:

    python3 scripts/tools/deepspeed_gradient_sums.py mpi_tests/unit/plan/data/deepspeed_gradient_sums.json

The cases of a release that the file already has are replaced, those of others stay.

Of a small GPT-2 in 16 bits with data_types.grad_accum_dtype fp32 and three micro-steps:
in_16_bits: all gradients that the update reads are numbers of the model's type, so that the sums
were rounded. is_mean: their norm is that of the mean over ranks; else it is that of each rank's own.
"""

import json
import os
import subprocess
import sys
import tempfile

MICRO_STEPS = 3


def release():
    import deepspeed
    return deepspeed.__version__.split("+")[0]


def cases():
    # Older releases have none at stage 2.
    has_stage_2 = tuple(map(int, release().split("."))) >= (0, 19, 8)
    for precision in ("bf16", "fp16"):
        for stage in (1, 2, 3) if has_stage_2 else (1, 3):
            for offloaded in (False, True):
                for sent in (None, "fp32"):
                    yield {"precision": precision, "stage": stage, "offloaded": offloaded,
                           "communication_data_type": sent}


def small_model():
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel
    torch.manual_seed(0)
    return GPT2LMHeadModel(GPT2Config(
        n_layer=2, n_embd=32, n_head=2, vocab_size=64, n_positions=16, resid_pdrop=0, embd_pdrop=0,
        attn_pdrop=0, use_cache=False, bos_token_id=0, eos_token_id=0))


def batches_of(rank):
    import torch
    torch.manual_seed(100 + rank)
    return [torch.randint(0, 64, (1, 16)) for _ in range(MICRO_STEPS)]


def norm_of_mean(ranks, kind):
    model = small_model().to(kind).float()
    for rank in ranks:
        for tokens in batches_of(rank):
            loss = model(input_ids=tokens, labels=tokens).loss
            (loss / MICRO_STEPS / len(ranks)).backward()
    return sum(float(p.grad.double().pow(2).sum()) for p in model.parameters()) ** 0.5


def run_case(case):
    import deepspeed
    import torch
    import torch.distributed as distributed
    kind = torch.bfloat16 if case["precision"] == "bf16" else torch.float16
    rank, ranks = distributed.get_rank(), distributed.get_world_size()
    read = []

    class Reader(torch.optim.SGD):
        def step(self, closure=None):
            for group in self.param_groups:
                read.extend(p.grad.float().clone() for p in group["params"] if p.grad is not None)

    zero = {"stage": case["stage"]}
    if case["offloaded"]:
        zero["offload_optimizer"] = {"device": "cpu"}
    config = {"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": MICRO_STEPS,
              "zero_optimization": zero, "gradient_clipping": 0.0,
              "data_types": {"grad_accum_dtype": "fp32"},
              "communication_data_type": case["communication_data_type"],
              case["precision"]: {"enabled": True},
              "zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False}
    if case["precision"] == "fp16":
        config["fp16"]["loss_scale"] = 1
    model = small_model()
    engine = deepspeed.initialize(model=model, config=config,
                                  optimizer=Reader(model.parameters(), lr=0.0))[0]
    read.clear()  # some make an update as they begin
    for tokens in batches_of(rank):
        engine.backward(engine(input_ids=tokens, labels=tokens).loss)
        engine.step()
    gradients = torch.cat([each.reshape(-1) for each in read])
    norm = gradients.double().pow(2).sum()
    distributed.all_reduce(norm)
    norm = float(norm) ** 0.5
    mean = norm_of_mean(range(ranks), kind)
    own = sum(norm_of_mean([each], kind) for each in range(ranks)) / ranks
    result = dict(case, deepspeed=release(), ranks=ranks, optimizer=type(engine.optimizer).__name__,
                  in_16_bits=bool((gradients == gradients.to(kind).float()).all()),
                  is_mean=abs(norm - mean) <= abs(norm - own))
    engine.destroy()
    return result


def run_all(output):
    import deepspeed
    import torch
    torch.Tensor.record_stream = lambda *_: None  # meant for GPUs
    from deepspeed.accelerator import get_accelerator
    get_accelerator().is_fp16_supported = lambda: True  # few processors compute in it
    deepspeed.init_distributed("gloo", verbose=False)
    results = [run_case(case) for case in cases()]
    if torch.distributed.get_rank() == 0:
        with open(output, "a", encoding="utf-8") as file:
            file.writelines(json.dumps(each) + "\n" for each in results)


def main():
    output = os.path.abspath(sys.argv[1])
    if "LOCAL_RANK" in os.environ:
        run_all(output)
        return
    with tempfile.TemporaryDirectory() as folder:
        lines = os.path.join(folder, "cases")
        for ranks in (1, 2):
            subprocess.run([sys.executable, "-m", "torch.distributed.run", "--standalone",
                            "--nproc_per_node", str(ranks), __file__, lines], check=True,
                           env=dict(os.environ, DS_ACCELERATOR="cpu", OMP_NUM_THREADS="1"))
        with open(lines, encoding="utf-8") as file:
            rows = file.read().splitlines()
    if os.path.exists(output):
        made = json.loads(rows[0])["deepspeed"]
        with open(output, encoding="utf-8") as file:
            rows = [json.dumps(each) for each in json.load(file)["cases"]
                    if each["deepspeed"] != made] + rows
    with open(output, "w", encoding="utf-8") as file:
        file.write('{"cases": [\n' + ",\n".join(rows) + "\n]}\n")


if __name__ == "__main__":
    main()
