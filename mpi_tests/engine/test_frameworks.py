"""Frameworks that write into the configuration, and scripts that do otherwise than their member says."""

import os

from harness import EngineTest, HERE, config, losses, main

ALL_AUTO = {
    "fp16": {"enabled": "auto"},
    "bf16": {"enabled": "auto"},
    "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto",
                                              "torch_adam": True}},
    "scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": "auto", "warmup_max_lr": "auto",
                                                 "warmup_num_steps": "auto"}},
    "zero_optimization": {"stage": 3, "reduce_bucket_size": "auto", "stage3_prefetch_bucket_size": "auto",
                          "stage3_param_persistence_threshold": "auto"},
    "gradient_clipping": "auto",
    "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 1, "train_batch_size": 4,
}


def notes(result):
    return " ".join(result["build"][0].get("notes", []) + result["end"][0]["notes"])


def ask_operators(world):
    made = lambda kind, device="none", stage=2, **params: {
        "optimizer": {"type": kind, "params": params},
        "zero_optimization": {"stage": stage, "offload_optimizer": {"device": device}}}
    rank = world.ranks[0]
    rank.send("operators", configs=[
        made("AdamW"), made("AdamW", torch_adam=True), made("Adam", "cpu"), made("Lion"), made("Lamb"), made("SGD"),
        made("AdamW", "nvme", 3, torch_adam=True), {}])
    return rank.receive()


class FrameworksTest(EngineTest):
    @classmethod
    def workload(cls):
        return {"workload": {"script": os.path.join(HERE, "frameworks.py"),
                             "stated": ["activation_recompute", "sequence_length"]}}

    def run_how(self, how, ds_config, case="", words=(), **others):
        arguments = ["--how", how, "--case", case, "--deepspeed_config", "$CONFIG", *words]
        return self.world.experiment([0, 1], ds_config, arguments=arguments, folder=self.folder, **others)

    def test_a_script_that_makes_its_arguments_itself_is_told_what_a_launch_needs(self):
        result = self.run_how("trainer", {**ALL_AUTO, "steps_per_print": 2000})
        self.assertOk(result)
        reply = result["build"][0]
        self.assertEqual(reply["launch_arguments"], {"per_device_train_batch_size": 2, "use_cpu": True})
        self.assertFalse(reply["launch_arguments_are_words"])
        self.assertIn("use_cpu=True", notes(result))
        self.assertNotIn(" adds ", notes(result))

    def test_a_change_by_the_script_is_refused_and_an_addition_told(self):
        error = self.assertFails(self.run_how("trainer", config(2), "changes"), "refused", "zero_optimization/stage")
        self.assertIn("by the script", error["message"])
        added = self.run_how("trainer", config(2), "adds")
        self.assertOk(added)
        self.assertIn("the script adds prescale_gradients", notes(added))

    def test_a_loop_of_accelerate_runs(self):
        # Of the optimizer accelerate fills in these two, and refuses "auto" elsewhere.
        params = {"lr": "auto", "weight_decay": "auto", "torch_adam": True}
        ds_config = {**ALL_AUTO, "optimizer": {"type": "AdamW", "params": params}, "steps_per_print": 10}
        result = self.run_how("loop", ds_config, "schedule")
        self.assertOk(result)
        self.assertEqual(result["build"][0]["data_parallel_size"], 2)
        self.assertIn("PartialState(cpu=True)", " ".join(result["build"][0]["launch_lines"]))
        accumulated = self.run_how("loop", config(1, accumulation=2))
        self.assertOk(accumulated)
        self.assertEqual(accumulated["steps"][0][0]["samples"], 4)

    def test_a_loop_without_deepspeed_is_named(self):
        self.assertFails(self.run_how("loop", config(1), "cpu"), "exception", "accelerate's state does not use DeepSpeed")

    def test_auto_that_nobody_fills_in_is_named(self):
        error = self.assertFails(self.run_how("plain", ALL_AUTO), "refused", "optimizer/params/lr (the rate")
        self.assertIn("gradient_clipping (1.0", error["message"])
        self.assertNotIn("zero_optimization", error["message"])

    def test_auto_that_the_script_fills_in_is_taken(self):
        ds_config = config(1, optimizer={"type": "AdamW", "params": {"lr": "auto", "weight_decay": "auto",
                                                                     "torch_adam": True}},
                           zero={"reduce_bucket_size": "auto"})
        filled = self.run_how("plain", ds_config, "fills")
        self.assertOk(filled)
        self.assertIn("zero_optimization/reduce_bucket_size", notes(filled))
        stated = config(1)
        stated["optimizer"]["params"]["weight_decay"] = 0.0
        self.assertEqual(losses(filled), losses(self.run_how("plain", stated)))

    def test_recompute_that_the_script_ignores_is_switched_in_models_of_transformers(self):
        block = self.run_how("plain", config(1), recompute="block")
        self.assertOk(block)
        self.assertEqual(block["build"][0]["launch_lines"], ["model.activation_checkpointing_enable()"])
        none = self.run_how("plain", config(1))
        self.assertOk(none)
        self.assertEqual(none["build"][0]["launch_lines"], [])
        for one, other in zip(losses(block), losses(none)):
            self.assertAlmostEqual(one, other, delta=1e-5)
        off = self.run_how("plain", config(1), "always")
        self.assertOk(off)
        self.assertEqual(off["build"][0]["launch_lines"], ["model.activation_checkpointing_disable()"])

    def test_recompute_that_the_script_ignores_is_refused_elsewhere(self):
        error = self.assertFails(self.run_how("plain", config(1), "hidden", recompute="block"), "refused",
                                 "recomputes nothing")
        self.assertIn('if os.environ.get("DSTUNE_ACTIVATION_RECOMPUTE") == "block": '
                      "model.gradient_checkpointing_enable()", error["message"])

    def test_a_length_that_the_script_ignores_is_refused(self):
        self.assertFails(self.run_how("plain", config(1), words=["--length", "48"]), "refused", "have 48 tokens")
        self.assertFails(self.run_how("plain", config(1), words=["--length", "16"], steps=4), "refused",
                         "have 16 tokens in each batch")
        padded = self.run_how("plain", config(1), "pads", steps=4)
        self.assertOk(padded)
        self.assertIn("22 to 30 tokens", notes(padded))

    def test_an_optimizer_of_the_scripts_own_is_compared(self):
        self.assertFails(self.run_how("plain", config(1, zero_allow_untested_optimizer=True), "optimizer"), "refused",
                         "hands an optimizer of its own, SGD")
        self.assertFails(self.run_how("plain", config(1), "rate"), "refused", "AdamW with lr 0.1")

    def test_operators_that_configurations_need_are_known_before(self):
        # The script may hand an optimizer over, and DeepSpeed makes none then.
        self.assertEqual(ask_operators(self.world)["needed"], [[], [], [], [], [], [], ["async_io"], []])


if __name__ == "__main__":
    main()
