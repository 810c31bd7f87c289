"""The command "prepare": the imports, once a job, and what has to hold before anything runs."""

import contextlib
import importlib
import os
import sys

from . import (accelerate_loop, after_import, descriptors, environment, guard, hooks, operators, rewrites, script,
               surroundings, temporary, trainer)
from .errors import Refused, message_of

OLDEST = (0, 16)
LAUNCHERS = ("OMPI_", "PMIX_", "PMI_", "MPI_LOCAL", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS", "MV2_COMM")


def forget_launcher():
    """Variables of mpirun contradict the group's: packages would take them for their own launch's."""
    environment.forget_quietly([name for name in os.environ if name.startswith(LAUNCHERS)])


def set_defaults(device, threads):
    settings = {"DS_ACCELERATOR": device, "TOKENIZERS_PARALLELISM": "false", "WANDB_MODE": "disabled",
                "WANDB_SILENT": "true", "COMET_MODE": "DISABLED", "DISABLE_MLFLOW_INTEGRATION": "TRUE",
                "TORCH_NCCL_ENABLE_MONITORING": "0", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0",
                "TORCHINDUCTOR_COMPILE_THREADS": "1", "OMP_NUM_THREADS": str(threads)}
    os.environ.update(settings)
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")


def imported(name, channel):
    channel.note_progress(f"importing {name}")
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise Refused(f"{sys.executable} can not import {name} ({message_of(error)}); install it there, or name "
                      "another environment as \"python\" in dstune.workload or dstune.verify") from error
    except Exception as error:
        raise Refused(f"importing {name} in {sys.executable} fails: {message_of(error)}") from error


# Modules that engines import when they are made first: that would be the first experiment's time.
ON_FIRST_USE = ("torch._dynamo", "deepspeed.runtime.zero.stage_1_and_2", "deepspeed.runtime.zero.stage3",
                "deepspeed.runtime.zero.muon.original_muon", "deepspeed.runtime.bf16_optimizer",
                "deepspeed.module_inject.auto_ep_layer", "deepspeed.ops.triton_ops.autoep_fused_token_ops",
                "deepspeed.runtime.superoffload.superoffload_stage3", "deepspeed.moe.layer")


def import_what_engines_use(channel):
    """Names differ between versions; what is not there is not used."""
    channel.note_progress("importing what engines use")
    for name in ON_FIRST_USE:
        with contextlib.suppress(Exception):
            importlib.import_module(name)


def version_of(name):
    module = sys.modules.get(name)
    return getattr(module, "__version__", None)


def check_versions(torch, deepspeed, device):
    parts = tuple(int(part) for part in deepspeed.__version__.split("+")[0].split(".")[:2])
    if parts < OLDEST:
        raise Refused(f"DeepSpeed {deepspeed.__version__} in {sys.executable} is too old to run inside the job: "
                      "0.16 or newer is needed")
    if not torch.distributed.is_available():
        raise Refused(f"torch {torch.__version__} in {sys.executable} was built without torch.distributed")
    if device == "cuda" and not torch.cuda.is_available():
        raise Refused(f"torch {torch.__version__} in {sys.executable} finds no GPU ("
                      f"{'built without CUDA' if torch.version.cuda is None else 'CUDA ' + torch.version.cuda}); "
                      "install a build for this machine's driver, or run with --backend cpu")
    if device == "cuda" and not torch.distributed.is_nccl_available():
        raise Refused(f"torch {torch.__version__} in {sys.executable} was built without NCCL")


def prepare(order, channel, state):
    """Returns the members of the reply."""
    forget_launcher()
    workload = order["workload"]
    path = workload.get("script")
    files = []
    if path:
        script.check(path)
        files = script.module_files(path)
    elif workload.get("function"):
        raise Refused("function is a function of a script: add script, the file that has it")
    elif not order.get("model") and not order.get("imports_only"):
        raise Refused("there is neither a script (script, dstune.training_command) nor a model's config.json "
                      "(dstune.model.hf_config)")
    set_defaults(order["device"], order["threads"])
    temporary.remove_of_ended_processes()
    guard.install()
    descriptors.opened.install()
    descriptors.streams.install()
    torch = imported("torch", channel)
    torch.set_num_threads(max(1, int(order["threads"])))
    imported("torch.distributed", channel)
    after_import.call_after_import("deepspeed.", state.take)
    deepspeed = imported("deepspeed", channel)
    check_versions(torch, deepspeed, order["device"])
    if order["device"] == "cuda":
        torch.cuda.set_device(order["device_index"])
    rewrites.install()
    accelerate_loop.install()
    trainer.install()
    tokens = not path and order.get("model") and not order.get("imports_only")
    if tokens or script.imports_any(files, ("transformers", "accelerate", "trl", "peft")):
        imported("transformers", channel)
        imported("accelerate", channel)
        imported("transformers.trainer", channel)
    operators.install()
    hooks.install_initialize()
    import_what_engines_use(channel)
    surroundings.note_prepared_packages()
    state.take_torch()
    versions = {"python": sys.version.split()[0], "torch": torch.__version__, "deepspeed": deepspeed.__version__}
    for name in ("transformers", "accelerate", "peft", "numpy"):
        if version_of(name):
            versions[name] = version_of(name)
    if order["device"] == "cuda":
        versions["cuda"] = str(torch.version.cuda)
        nccl = torch.cuda.nccl.version()
        versions["nccl"] = ".".join(map(str, nccl)) if isinstance(nccl, tuple) else str(nccl)
    return {"versions": versions,
            "paths": {"torch": torch.__file__, "deepspeed": deepspeed.__file__},
            "script_hash": script.hash_of(files) if files else "",
            "operators": operators.survey()}
