"""Operators that DeepSpeed compiles at first use: loaded where they are built, named where not."""

import importlib
import os
import shlex
import sys

from .errors import MissingOperator

# DeepSpeed's all-reduce for CPUs is set up once a process, for one group, for good: groups change here.
NEVER = ("deepspeed_shm_comm", "deepspeed_ccl_comm")


def extension_folder(name):
    """Where torch builds the extension `name`; nothing is created, as torch itself would."""
    torch = sys.modules["torch"]
    from torch.utils import cpp_extension
    root = os.environ.get("TORCH_EXTENSIONS_DIR")
    if root is None:
        version = sys.version_info
        device = "cpu" if torch.version.cuda is None else "cu" + torch.version.cuda.replace(".", "")
        flags = getattr(sys, "abiflags", "")
        root = os.path.join(cpp_extension.get_default_build_root(),
                            f"py{version.major}{version.minor}{flags}_{device}")
    return os.path.join(root, name)


def sources_of(builder):
    try:
        return [builder.deepspeed_src_path(path) for path in builder.sources() if path]
    except Exception:  # sources may ask for a compiler's version
        return []


def built_library(builder):
    """The operator's shared library, if it was built and is not older than its sources."""
    folder = extension_folder(builder.name)
    library = os.path.join(folder, builder.name + ".so")
    if not os.path.exists(library):
        return None
    age = os.path.getmtime(library)
    if any(os.path.getmtime(path) > age for path in sources_of(builder) if os.path.exists(path)):
        return None
    return library


def command_for(builder):
    """The command for a shell whose environment need not be activated: ninja stands beside the interpreter."""
    kind = type(builder)
    words = [f"PATH={shlex.quote(os.path.dirname(sys.executable))}:$PATH"]
    if "TORCH_EXTENSIONS_DIR" in os.environ:
        words.append("TORCH_EXTENSIONS_DIR=" + shlex.quote(os.environ["TORCH_EXTENSIONS_DIR"]))
    words.append(shlex.quote(sys.executable))
    return " ".join(words) + f" -c \"from {kind.__module__} import {kind.__name__} as b; b().load()\""


def load_built(builder):
    """In the place of OpBuilder.jit_load."""
    library = built_library(builder)
    if library is None:
        raise MissingOperator(f"this configuration needs DeepSpeed's operator {builder.name}, which is not built, "
                              f"and no compiler may be started inside the job; build it before: {command_for(builder)}")
    from torch.utils import cpp_extension
    module = cpp_extension._import_module_from_library(builder.name, os.path.dirname(library), True)
    from deepspeed.ops.op_builder.builder import OpBuilder
    OpBuilder._loaded_ops[builder.name] = module
    return module


def install():
    builder = importlib.import_module("deepspeed.ops.op_builder.builder")
    builder.OpBuilder.jit_load = lambda self, verbose=True: load_built(self)
    importlib.import_module("deepspeed.comm.torch").build_shm_op = lambda: None


def survey():
    """{"available": names, "missing": {name: command that builds it}} for the accelerator in use.

    What is in neither DeepSpeed does not have for it.
    """
    available, missing = [], {}
    from deepspeed.accelerator import get_accelerator
    from deepspeed.git_version_info import accelerator_name, installed_ops
    # Those that were built with DeepSpeed serve the accelerator of then (OpBuilder.load).
    is_installed = accelerator_name == get_accelerator()._name
    from deepspeed.ops.op_builder.all_ops import ALL_OPS
    for name, builder in sorted(ALL_OPS.items()):
        if name in NEVER or "not_implemented" in name or type(builder).__name__ == "NotImplementedBuilder":
            continue
        if (is_installed and installed_ops.get(name, False)) or built_library(builder):
            available.append(name)
        else:
            missing[name] = command_for(builder)
    return {"available": available, "missing": missing}


def unloadable(names):
    """{name: (reason, command that builds it again)} of built operators among `names` that do not load.

    Another Python or PyTorch may have built them in the same folder.
    """
    from deepspeed.ops.op_builder.all_ops import ALL_OPS
    found = {}
    for name in sorted(names):
        builder = ALL_OPS.get(name)
        if builder is None or not built_library(builder):
            continue
        try:
            load_built(builder)
        except Exception as error:  # whatever a library's start raises
            found[name] = (f"{type(error).__name__}: {error}", command_for(builder))
    return found


def section(config, *path):
    for name in path:
        config = config.get(name) if isinstance(config, dict) else None
    return config if isinstance(config, dict) else {}


def of_optimizer(config):
    """The operator that DeepSpeed loads for the optimizer of the configuration, or ""."""
    optimizer = section(config, "optimizer")
    kind = str(optimizer.get("type", "")).lower()
    on_host = section(config, "zero_optimization", "offload_optimizer").get("device") in ("cpu", "nvme")
    if kind in ("adam", "adamw", "muon"):
        if section(optimizer, "params").get("torch_adam") is True:
            return ""
        return "cpu_adam" if on_host else "fused_adam"
    if kind == "adagrad":
        return "cpu_adagrad" if on_host else ""
    if kind == "lion":
        return "cpu_lion" if on_host else "fused_lion"
    return "fused_lamb" if kind == "lamb" else ""


def needed(config, has_own_optimizer=False):
    """Operators that DeepSpeed loads for an engine of this configuration on any device, sorted.

    `has_own_optimizer`: the script may hand one over, and DeepSpeed makes none then. 1-bit optimizers,
    and those of torch, need no operator.
    """
    zero = section(config, "zero_optimization")
    names = set() if has_own_optimizer else {of_optimizer(config)}
    if zero.get("stage") == 3:
        # DeepSpeed takes the host's memory for the disk's below it.
        if "nvme" in (section(zero, "offload_optimizer").get("device"), section(zero, "offload_param").get("device")):
            names.add("async_io")
        if any(zero.get(name) is True for name in ("zero_quantized_weights", "zero_quantized_gradients",
                                                   "zero_quantized_nontrainable_weights")):
            names.add("quantizer")
    return sorted(names - {""})
