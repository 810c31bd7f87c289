"""One experiment: from "build" to "end"."""

import gc
import os
import sys

from . import (accelerate_loop, environment, errors, groups, leftovers, observed, own_loop, process_settings,
               process_state, script, surroundings, temporary, trainer)
from .hooks import Hooks
from .steps import Steps


class ScriptEnded(errors.Refused):
    """Its loop is over before the program had seen enough steps."""


class Experiment:
    """`job` holds what lives as long as the process: channel, output, module state, stores, losses."""

    def __init__(self, order, job):
        self.order_ = order
        self.job_ = job
        # What the user trains is of no matter where the model is ours.
        self.workload_ = {} if order.get("own_model") else job.prepared["workload"]
        order.setdefault("device_index", job.prepared.get("device_index", 0))
        order["device"] = job.prepared["device"]
        order["stated"] = list(self.workload_.get("stated", ()))
        self.order_["ds_config"] = without_monitors(order["ds_config"])
        self.device_ = job.prepared["device"]
        self.notes_ = []
        self.leftovers_ = leftovers.Leftovers()
        self.surroundings_ = surroundings.Surroundings()
        self.group_ = groups.Group(order, job.prepared, job.stores, job.channel)
        self.steps_ = Steps(job.channel, order, self.device_, self.group_, self.ready_, job.output)
        self.steps_.observed = observed.Observed(order, order["stated"], self.steps_.refuse, self.note_)
        self.hooks_ = Hooks(order, self.steps_, self.leftovers_.track, self.notes_, job.written, self.steps_.observed)
        self.config_file_ = None
        self.scratch_ = None
        self.variables_ = []
        self.process_ = process_settings.ProcessSettings()

    def run(self):
        """Builds and trains. Returns ({reply of the failure}, None) or (None, the command "end")."""
        process_state.reset_peak()
        channel, steps = self.job_.channel, self.steps_
        with process_state.data_limit(int(self.order_.get("memory_limit_bytes") or 0)) as is_near:
            error = channel.run_script(self.all_of_it_)
            near_limit = is_near()
        self.process_.put_back()
        if steps.ended is not None:  # whatever the script made of it
            errors.forget_frames(error)
            return None, steps.ended
        if steps.failure is not None and not isinstance(error, errors.Interrupted):
            error = steps.failure
        if type(error) is errors.Unwinding:  # the script caught what came first
            error = errors.Interrupted()
        told = errors.describe(error, self.job_.output.text(), near_limit)
        if told["kind"] == "exception" and not self.hooks_.initialized:
            told["message"] += accelerate_loop.why_not_deepspeed()
        has_ended = isinstance(error, ScriptEnded) or (isinstance(error, SystemExit) and not error.code)
        errors.forget_frames(error)
        steps.failure = None
        if has_ended and steps.unsent:
            # On all ranks alike: what came before may be all that is needed.
            command = channel.exchange(steps.hand_over())
            if command["command"] != "step":
                return None, command
        return {"ok": False, "error": {**told, **self.new_notes_()}}, None

    def note_(self, text):
        if text not in self.notes_:
            self.notes_.append(text)

    def all_of_it_(self):
        self.job_.channel.open_to_interrupts()
        self.begin_ = self.steps_.clock_.settled()
        self.enter_()
        self.job_.written.start()
        self.user_code_()
        self.ended_()

    def new_notes_(self):
        """What a failure's reply has beside its cause: the program records it before it sends "end"."""
        wrote = [path for path in self.job_.written.paths() if path not in self.job_.wrote]
        self.job_.wrote.update(wrote)
        return {"notes": self.job_.only_new(self.notes_ + self.steps_.notes), "wrote": wrote}

    def enter_(self):
        order = self.order_
        variables = groups.variables_of(order, self.job_.prepared)
        variables.update({"DSTUNE_SEQUENCE_LENGTH": order["sequence_length"], "DSTUNE_SEED": order["seed"],
                          "DSTUNE_ACTIVATION_RECOMPUTE": order["recompute"], "DSTUNE_EXPERIMENT": order["experiment"],
                          "ACCELERATE_USE_DEEPSPEED": "true"})  # as accelerate's own launcher does
        self.variables_ = list(variables)
        environment.set_quietly(variables)
        os.chdir(self.working_folder_())
        self.group_.open()
        self.hooks_.install()
        trainer.current = accelerate_loop.current = (order, self.hooks_)
        surroundings.seed_everything(order["seed"])

    def working_folder_(self):
        """The folder of space.json, or an empty one of this rank and attempt that goes with the experiment."""
        if self.workload_.get("scratch"):
            self.scratch_ = temporary.make("dstune-scratch-")
            return self.scratch_
        return self.order_.get("folder") or self.workload_.get("folder") or os.getcwd()

    def user_code_(self):
        path = self.workload_.get("script")
        if self.order_.get("own_model"):
            own_loop.run_own_model(self.order_)
        elif not path:
            own_loop.run_random_tokens(self.job_.prepared["model"], self.order_)
        elif self.workload_.get("function"):
            own_loop.run_made(path, self.workload_["function"], self.order_)
        else:
            self.config_file_ = script.ConfigFile(self.order_["ds_config"])
            words = script.arguments_with(self.order_.get("arguments") or [], self.config_file_.path)
            script.run(path, script.with_local_rank(path, words, os.environ["LOCAL_RANK"]))

    def ended_(self):
        """The script came to its end, which it should not have."""
        if self.steps_.failure is not None:
            raise self.steps_.failure
        if self.steps_.ended is not None:
            raise errors.EndOfExperiment(self.steps_.ended)
        if not self.hooks_.initialized:
            raise errors.Refused("the script ended without calling deepspeed.initialize: its configuration is ignored" +
                                 accelerate_loop.why_not_deepspeed())
        raise ScriptEnded(f"the script ended after {self.steps_.done} optimizer steps of "
                          f"{self.order_.get('steps_hint') or 'those needed'}; give it more epochs or data")

    def ready_(self):
        """The reply to "build"."""
        engine, launch = self.steps_.engine, self.hooks_.launch
        size = lambda one: int(getattr(one, "ds_numel", None) or one.numel())
        parameters = list(engine.module.parameters())
        return {"ok": True, "parameters": sum(map(size, parameters)),
                "trainable_parameters": sum(size(one) for one in parameters if one.requires_grad),
                "data_parallel_size": int(engine.dp_world_size), "global_batch": int(engine.train_batch_size()),
                "sockets": self.group_.sockets, "init_s": self.steps_.clock_.settled() - self.begin_,
                "launch_arguments": launch.arguments, "launch_arguments_are_words": launch.are_words,
                "launch_lines": launch.lines + self.steps_.observed.recompute.lines,
                "notes": self.job_.only_new(self.notes_), "wrote": []}

    def finish(self, failed):
        """The command "end": everything goes. Local; returns the reply."""
        job = self.job_
        if self.workload_.get("function") and self.workload_.get("script"):
            try:
                own_loop.clean_up(self.workload_["script"])
            except Exception as error:
                self.notes_.append("cleanup() failed: " + errors.message_of(error))
                errors.forget_frames(error)
            self.process_.put_back()
        self.process_.end_threads(surroundings.is_users_function)
        job.written.stop()
        if 0 < self.hooks_.trainer_steps < self.steps_.done:
            self.note_(trainer.LONGER)
        told = self.new_notes_()
        notes = self.process_.take_notes()
        state = job.losses.compare(self.order_, self.steps_.first_losses) if self.steps_.first_losses else None
        if state:
            notes.append(state)
        trainer.current = accelerate_loop.current = None
        self.steps_.observed.stop()
        self.hooks_.remove()
        self.steps_.engine = None
        self.steps_.begin_step_()
        self.leftovers_.destroy()
        trainer.reset()
        close_zero_contexts()
        job.state.restore()
        gc.collect()
        self.group_.close(failed)
        job.state.restore()
        environment.put_back_quietly(self.variables_, self.surroundings_.environment)
        self.surroundings_.put_back()
        if self.config_file_:
            self.config_file_.remove()
        if self.scratch_:
            temporary.remove(self.scratch_)
        job.output.clear()
        leftovers.reset_torch(self.device_)
        leaked = self.leftovers_.left()
        self.process_.settle()
        reply = {"ok": True, "leaked": leaked, "resident_bytes": process_state.resident_bytes(),
                 "threads": process_state.threads(), "descriptors": process_state.descriptors(),
                 "wrote": told["wrote"], "notes": told["notes"] + job.only_new(notes)}
        if self.device_ == "cuda":
            free, total = sys.modules["torch"].cuda.mem_get_info()
            reply.update({"device_free_bytes": free, "device_total_bytes": total})
        return reply


def without_monitors(config):
    """A copy without what reports to servers or writes files while a step is timed."""
    return {key: value for key, value in config.items()
            if key not in ("tensorboard", "wandb", "comet", "csv_monitor", "autotuning")}


def close_zero_contexts():
    """A script may have left zero.Init active."""
    module = sys.modules.get("deepspeed.runtime.zero.partition_parameters")
    if module is not None and getattr(module, "top_level_context", None) is not None:
        try:
            module.shutdown_init_context()
        except Exception as error:
            errors.forget_frames(error)
