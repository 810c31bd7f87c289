"""What the installed DeepSpeed says of a config: its config classes, its engine and one step.

Runs on one process without a GPU: torch's fake process group stands for the other ranks, DeepSpeed's
compiled optimizers are replaced by functions that check the types of their arguments.
"""

import contextlib
import copy
import dataclasses
import gc
import json
import logging
import os
import types


@dataclasses.dataclass(frozen=True)
class Refusal:
    where: str  # "config", "engine" (initialization) or "step" (one optimizer step)
    message: str  # the first line of what DeepSpeed said


class CompiledAdam:
    """Takes the arguments of DeepSpeed's compiled optimizers and changes nothing."""

    def multi_tensor_adam(self, chunk_size, overflow, tensors, lr, beta1, beta2, epsilon, step, mode,
                          bias_correction, weight_decay):
        for number in (lr, beta1, beta2, epsilon, weight_decay):
            if not isinstance(number, (int, float)):
                raise TypeError(f"incompatible function argument {number!r}: expected a number")
        for number in (chunk_size, step, mode, bias_correction):
            if not isinstance(number, int):
                raise TypeError(f"incompatible function argument {number!r}: expected an integer")

    def __getattr__(self, name):
        return lambda *arguments, **keywords: None


class Engine:
    """DeepSpeed as rank 0 of `world_size` ranks. One a process."""

    def __init__(self, world_size):
        os.environ.update(DS_ACCELERATOR="cpu", RANK="0", LOCAL_RANK="0", WORLD_SIZE=str(world_size),
                          LOCAL_SIZE=str(world_size), CROSS_RANK="0", CROSS_SIZE="1",
                          MASTER_ADDR="127.0.0.1", MASTER_PORT="29500")
        with muted():
            import deepspeed
            import torch
            from deepspeed.ops.op_builder.builder import OpBuilder
            from deepspeed.ops.op_builder.cpu.no_impl import NotImplementedBuilder
            from torch.testing._internal.distributed.fake_pg import FakeStore
            deepspeed.utils.logger.setLevel(logging.CRITICAL + 1)
            torch.distributed.init_process_group("fake", rank=0, world_size=world_size,
                                                 store=FakeStore())
            for builder in (OpBuilder, NotImplementedBuilder):
                builder.load = lambda self, verbose=True: CompiledAdam()
            deepspeed.init_distributed(dist_backend="fake", auto_mpi_discovery=False,
                                       dist_init_required=False)
            # A GPU's answers; this machine's processor may say no.
            accelerator = deepspeed.accelerator.get_accelerator()
            accelerator.is_fp16_supported = lambda: True
            accelerator.is_bf16_supported = lambda: True
            torch.set_num_threads(1)
        self.version = deepspeed.__version__
        self.world_size = world_size
        self._deepspeed = deepspeed
        self._torch = torch

    def refusal(self, config):
        """Refusal, or None where DeepSpeed takes the config and trains one step with it."""
        config = json.loads(json.dumps(config))
        message = self.refusal_of_config(config)
        if message:
            return Refusal("config", message)
        where = "engine"
        with muted():
            try:
                engine = self.initialized(config)
                where = "step"
                self._train(engine)
            except (Exception, SystemExit) as error:  # noqa: BLE001: whatever DeepSpeed raises
                return Refusal(where, first_line(error))
            finally:
                # Stage 3 collects garbage each time, and engines leave some: not to be looked at again.
                gc.freeze()
        return None

    def refusal_of_config(self, config, world_size=None):
        """What DeepSpeed's config classes alone say of it, for another number of ranks where one is
        given; or None."""
        size = world_size or self.world_size
        parallel = types.SimpleNamespace(get_data_parallel_world_size=lambda: size)
        with muted():
            try:
                self._deepspeed.DeepSpeedConfig(copy.deepcopy(config), mpu=parallel)
            except (Exception, SystemExit) as error:  # noqa: BLE001: whatever DeepSpeed raises
                return first_line(error)
        return None

    def initialized(self, config):
        """A DeepSpeed engine with a small model; raises what DeepSpeed raises."""
        torch = self._torch
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8))
        for parameter in model.parameters():
            parameter.use_muon = parameter.dim() == 2
        engine, *_ = self._deepspeed.initialize(model=model, config=copy.deepcopy(config),
                                                model_parameters=list(model.parameters()),
                                                dist_init_required=False)
        if config.get("activation_checkpointing"):
            self._deepspeed.checkpointing.configure(None, deepspeed_config=copy.deepcopy(config))
        return engine

    def _train(self, engine):
        kind = next(engine.parameters()).dtype
        for _ in range(min(engine.gradient_accumulation_steps(), 4)):
            loss = engine(self._torch.ones(1, 8, dtype=kind)).float().sum()
            engine.backward(loss)
            engine.step()


def first_line(error):
    """The first line that says something; a pydantic error's is its first complaint."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if lines and "validation error" in lines[0] and len(lines) > 2:
        return f"{lines[1]}: {lines[2].split(' [type=')[0]}"
    return lines[0] if lines else type(error).__name__


@contextlib.contextmanager
def muted():
    """DeepSpeed and the loading of its operators print to both streams."""
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere), \
            contextlib.redirect_stderr(nowhere):
        yield
