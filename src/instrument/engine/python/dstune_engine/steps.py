"""The engine's optimizer steps, seen from outside: where one ends, what it took, its losses.

The methods of the engine that a training loop calls are wrapped. Before the first training forward
the program is told that the experiment is built; after as many steps as it asked for it gets them and
answers with the next command. Meanwhile the script stands still inside the wrapped method, so that
the ranks begin the next step a little apart, with cold caches: where steps are short several are
asked for at once.
"""

import sys
from time import perf_counter  # a script may put another function into its place

from . import process_settings, process_state
from .errors import EndOfExperiment, Interrupted, Refused

MAX_UNEVEN_STEPS = 3
NAMED_FIRST = ("input_ids", "inputs_embeds", "pixel_values", "input_values", "input_features", "inputs", "input",
               "x", "images", "samples")


def first_tensor(args, kwargs):
    """(name, tensor) of the input whose first dimension is the batch, or None."""
    torch = sys.modules["torch"]

    def search(name, value):
        if isinstance(value, torch.Tensor):
            return (name, value) if value.dim() > 0 else None
        if isinstance(value, dict) or hasattr(value, "keys"):
            keys = [key for key in NAMED_FIRST if key in value] + [key for key in value.keys()]
            found = (search(f"{name}[{key!r}]" if name else str(key), value[key]) for key in keys)
        elif isinstance(value, (list, tuple)):
            found = (search(f"{name}[{index}]", one) for index, one in enumerate(value))
        else:
            return None
        return next((one for one in found if one), None)

    for index, value in enumerate(args):
        found = search(f"argument {index + 1}", value)
        if found:
            return found
    return search("", kwargs)


def scalar_in(output):
    """The loss in what a model returned: a scalar, its `loss`, or the first of several."""
    torch = sys.modules["torch"]
    if isinstance(output, torch.Tensor):
        return output if output.numel() == 1 else None
    loss = getattr(output, "loss", None)
    if loss is None and isinstance(output, dict):
        loss = output.get("loss")
    if loss is None and isinstance(output, (list, tuple)) and output:
        loss = output[0]
    return loss if isinstance(loss, torch.Tensor) and loss.numel() == 1 else None


class Clock:
    """Seconds on the CPU; on a GPU with what its queue still holds."""

    def __init__(self, device):
        self.cuda_ = sys.modules["torch"].cuda if device == "cuda" else None

    def settled(self):
        if self.cuda_:
            self.cuda_.synchronize()
        return perf_counter()

    def mark(self):
        """A point in time inside a step that costs no synchronization."""
        if not self.cuda_:
            return perf_counter()
        event = self.cuda_.Event(enable_timing=True)
        event.record()
        return event

    def between(self, marks):
        """Seconds between pairs of marks, once all is settled."""
        if not self.cuda_:
            return sum(end - begin for begin, end in marks)
        return sum(begin.elapsed_time(end) for begin, end in marks) / 1000.0


class Steps:
    """One experiment's steps. `ready` makes the reply to "build"; `group` notes new sockets."""

    def __init__(self, channel, order, device, group, ready, output):
        self.channel_ = channel
        self.order_ = order
        self.device_ = device
        self.group_ = group
        self.ready_ = ready
        self.output_ = output
        self.clock_ = Clock(device)
        self.engine = None
        self.observed = None  # compares what the member says with what the script does
        self.started = False
        self.failure = None  # what a hook raised: a script that swallows it does not get further
        self.ended = None
        self.done = 0  # optimizer steps
        self.wanted_ = 0  # of them, by the last command
        self.unsent = []  # replies to it
        self.first_losses = []
        self.notes = []
        self.uneven_in_a_row_ = 0
        self.begin_step_()

    # What the engine's methods call.

    def attach(self, engine):
        if self.engine is not None:
            self.refuse("the script calls deepspeed.initialize twice; one engine can be tuned at a time")
        self.engine = engine
        for name in ("forward", "backward", "step", "train_batch"):
            if hasattr(type(engine), name):
                self.wrap_(engine, name, getattr(self, name + "_"))
        for name in ("save_checkpoint", "save_16bit_model", "save_fp16_model"):
            if hasattr(type(engine), name):
                vars(engine)[name] = lambda *_, **__: True

    @staticmethod
    def wrap_(engine, name, hook):
        original = getattr(engine, name)

        def wrapped(*args, **kwargs):
            return hook(original, args, kwargs)

        wrapped.__name__, wrapped.__doc__, wrapped.__wrapped__ = name, original.__doc__, original
        vars(engine)[name] = wrapped

    def forward_(self, original, args, kwargs):
        if not self.is_training_():
            return original(*args, **kwargs)
        self.arrive_()
        self.check_batch_(args, kwargs)
        begin = self.clock_.mark()
        output = original(*args, **kwargs)
        self.forwards_.append((begin, self.clock_.mark()))
        self.output_loss_ = scalar_in(output)
        return output

    def backward_(self, original, args, kwargs):
        if self.in_whole_step_:
            return original(*args, **kwargs)
        self.check_()
        loss = args[0] if args else kwargs.get("loss")
        if loss is not None:
            # Who scales by accumulation itself hands over a share of the mean.
            share = kwargs.get("scale_wrt_gas", True)
            self.losses_.append(loss.detach() * (1 if share else self.order_["accumulation_steps"]))
        begin = self.clock_.mark()
        result = original(*args, **kwargs)
        self.backwards_.append((begin, self.clock_.mark()))
        return result

    def step_(self, original, args, kwargs):
        if self.in_whole_step_:
            return original(*args, **kwargs)
        self.check_()
        if len(self.losses_) < len(self.forwards_) and self.output_loss_ is not None and not self.backwards_:
            self.losses_.append(self.output_loss_.detach())  # the script calls loss.backward()
        self.output_loss_ = None
        before, skipped = self.engine.global_steps, self.engine.skipped_steps
        begin = self.clock_.mark()
        result = original(*args, **kwargs)
        self.updates_.append((begin, self.clock_.mark()))
        if self.engine.global_steps > before:
            self.boundary_(self.engine.skipped_steps > skipped)
        return result

    def train_batch_(self, original, args, kwargs):
        self.arrive_()
        before, skipped = self.engine.global_steps, self.engine.skipped_steps
        self.in_whole_step_ = True
        begin = self.clock_.mark()
        try:
            result = original(*args, **kwargs)
        finally:
            self.in_whole_step_ = False
        self.forwards_.append((begin, self.clock_.mark()))
        loss = scalar_in(result)
        if loss is not None:
            self.losses_.append(loss.detach())
        if self.engine.global_steps > before:
            self.boundary_(self.engine.skipped_steps > skipped, whole=True)
        return result

    # Between the steps.

    def begin_step_(self):
        self.forwards_, self.backwards_, self.updates_, self.losses_ = [], [], [], []
        self.output_loss_ = None
        self.uneven_ = None
        self.samples_ = 0
        self.in_whole_step_ = False
        self.begin_ = perf_counter()

    def is_training_(self):
        torch = sys.modules["torch"]
        return torch.is_grad_enabled() and self.engine.module.training and not self.in_whole_step_

    def check_(self):
        """A hook that has raised, or the end of the experiment, is not forgotten by a script that catches it."""
        if self.ended is None and self.failure is None and not self.channel_.interrupted:
            return
        self.channel_.caught()
        # No variable holds it: it has to go when it is caught again.
        raise self.failure or (Interrupted() if self.ended is None else EndOfExperiment(self.ended))

    def refuse(self, message):
        self.failure = Refused(message)
        raise self.failure

    def arrive_(self):
        self.check_()
        if not self.started:
            self.started = True
            self.group_.note_sockets()
            self.wait_(self.ready_())
            self.observed.start()
            self.begin_step_()
            self.begin_ = self.clock_.settled()

    def wait_(self, reply):
        """Hands over a reply; comes back when the program wants the next step."""
        self.output_.clear()
        timers = process_settings.stop_timers()  # of the script, which stands still
        command = self.channel_.exchange(reply)
        process_settings.go_on(timers)
        if command["command"] != "step":
            self.ended = command
            raise EndOfExperiment(command)
        self.wanted_ = int(command.get("count", 1))
        self.channel_.open_to_interrupts()

    def hand_over(self):
        """The steps of the last command, of which the script's end may have left some out."""
        steps, self.unsent = self.unsent, []
        return {"ok": True, "steps": steps}

    def check_batch_(self, args, kwargs):
        found = first_tensor(args, kwargs)
        wanted = self.order_["micro_batch"]
        if found is None:
            return
        name, tensor = found
        size = tensor.shape[0]
        self.observed.batch(name, tensor)
        self.samples_ += size
        if size == wanted:
            return
        told = (f"the first dimension of the batch ({name or 'the input'}, shape {list(tensor.shape)}) is {size}, and "
                f"train_micro_batch_size_per_gpu is {wanted}; let the script take its batch size from "
                "engine.train_micro_batch_size_per_gpu() or from an argument that autotuning.arg_mappings names")
        if self.done == 0 or size > wanted:
            self.refuse(told)
        self.uneven_ = f"the last batch of an epoch has {size} samples instead of {wanted}"

    def check_micro_steps_(self):
        taken = len(self.backwards_) or len(self.forwards_)
        wanted = self.order_["accumulation_steps"]
        if taken == wanted:
            return
        if self.done == 0 or taken > wanted:
            self.refuse(f"the script takes {taken} micro-steps for an optimizer step, and gradient_accumulation_steps "
                        f"is {wanted}; let the script take it from engine.gradient_accumulation_steps() or from an "
                        "argument that autotuning.arg_mappings names")
        self.uneven_ = f"the last optimizer step of an epoch has {taken} micro-steps instead of {wanted}"

    def check_uneven_(self):
        """An uneven step is not timed; a script that has no others can not be measured."""
        self.uneven_in_a_row_ = self.uneven_in_a_row_ + 1 if self.uneven_ else 0
        if self.uneven_in_a_row_ >= MAX_UNEVEN_STEPS:
            self.refuse(f"{self.uneven_}, {self.uneven_in_a_row_} times in a row: the data set is too small for this "
                        "configuration")
        if self.uneven_:
            note = f"{self.uneven_}: such steps are not timed"
            if note not in self.notes:
                self.notes.append(note)

    def boundary_(self, overflowed, whole=False):
        end = self.clock_.settled()
        if whole:
            self.samples_ = self.order_["micro_batch"] * self.order_["accumulation_steps"]
        else:
            self.check_micro_steps_()
        self.check_uneven_()
        if self.done == 0:
            self.observed.first_step()
        self.done += 1
        if self.done <= 3:
            self.group_.note_sockets()  # gloo connects at first use
        torch = sys.modules["torch"]
        loss = None
        if self.losses_:
            loss = float(torch.stack([one.float().reshape(()) for one in self.losses_]).mean())
        if len(self.first_losses) < 5:
            self.first_losses.append(loss)
        cuda = self.device_ == "cuda"
        self.unsent.append({
            "loss": loss, "step_s": end - self.begin_,
            "forward_s": self.clock_.between(self.forwards_),
            "backward_s": self.clock_.between(self.backwards_),
            "update_s": self.clock_.between(self.updates_),
            "skipped": bool(overflowed) or self.uneven_ is not None, "samples": self.samples_,
            "device_peak_bytes": torch.cuda.max_memory_allocated() if cuda else 0,
            "resident_bytes": process_state.resident_bytes(),
            "peak_resident_bytes": process_state.peak_resident_bytes(),
        })
        self.begin_step_()
        if len(self.unsent) >= self.wanted_:
            self.wait_(self.hand_over())
        self.begin_ = perf_counter()
