"""Scripts with Hugging Face's Trainer run unchanged, with each experiment's configuration."""

import os

from harness import EngineTest, EXAMPLES, config, losses, main
from test_frameworks import ALL_AUTO, ask_operators


class TrainerTest(EngineTest):
    @classmethod
    def workload(cls):
        return {"workload": {"script": os.path.join(EXAMPLES, "trainer", "train.py")}}

    def run_trainer(self, ds_config, words=(), **others):
        arguments = ["--deepspeed", "$CONFIG", "--output_dir", "out", "--layers", "2", *words]
        return self.world.experiment([0, 1], ds_config, arguments=arguments, folder=self.folder, **others)

    def test_stages_give_the_same_losses_and_leave_nothing(self):
        first = self.run_trainer(config(1))
        self.assertOk(first)
        for stage in (2, 3, 1):
            result = self.run_trainer(config(stage))
            self.assertOk(result)
            for one, other in zip(losses(first), losses(result)):
                self.assertAlmostEqual(one, other, delta=1e-4 * abs(one))

    def test_batch_sizes_are_the_experiments(self):
        result = self.run_trainer(config(2, micro=3, accumulation=2), ["--per_device_train_batch_size", "8"])
        self.assertOk(result)
        self.assertEqual(result["steps"][0][0]["samples"], 6)
        self.assertEqual(result["build"][0]["global_batch"], 12)

    def test_losses_do_not_depend_on_accumulation(self):
        whole = losses(self.run_trainer(config(0, micro=4)))
        parts = losses(self.run_trainer(config(0, micro=4, accumulation=2)))
        self.assertAlmostEqual(whole[0], parts[0], delta=0.1)  # other samples, the same scale

    def test_values_that_only_the_trainer_knows_are_filled(self):
        ds_config = config(3, zero={"reduce_bucket_size": "auto", "stage3_prefetch_bucket_size": "auto",
                                    "stage3_param_persistence_threshold": "auto"}, gradient_clipping=0.5,
                           scheduler={"type": "WarmupLR", "params": {"warmup_min_lr": 0, "warmup_max_lr": 1e-3,
                                                                     "warmup_num_steps": 3}})
        self.assertOk(self.run_trainer(ds_config, ["--max_grad_norm", "2.0", "--learning_rate", "1.0"]))

    def test_other_clipping_than_the_configurations_is_told(self):
        notes = lambda result: " ".join(result["build"][0]["notes"] + result["end"][0]["notes"])
        same = self.run_trainer(config(1, gradient_clipping=0.0), ["--max_grad_norm", "0"])
        self.assertOk(same)
        self.assertNotIn("max_grad_norm", notes(same))
        other = self.run_trainer(config(1, gradient_clipping=0.0))
        self.assertOk(other)
        self.assertIn("max_grad_norm", notes(other))
        self.assertEqual(losses(same), losses(other))
        clipped = self.run_trainer(config(1, gradient_clipping=1e-6), ["--max_grad_norm", "1e-6"])
        self.assertNotEqual(losses(same), losses(clipped))

    def test_what_the_arguments_ask_for_beside_training_is_off(self):
        words = ["--save_strategy", "steps", "--save_steps", "1", "--dataloader_num_workers", "2",
                 "--report_to", "tensorboard"]
        result = self.run_trainer(config(1, micro=4), words)
        self.assertOk(result)
        self.assertFalse([name for _, folders, _ in os.walk(self.folder) for name in folders
                          if name.startswith("checkpoint")])

    def test_recompute_reaches_the_model(self):
        result = self.run_trainer(config(1), recompute="block")
        self.assertOk(result)
        self.assertTrue(result["build"][0]["launch_arguments"]["gradient_checkpointing"])

    def test_a_training_that_would_end_goes_on(self):
        result = self.run_trainer(config(1), ["--max_steps", "2"], steps=4)
        self.assertOk(result)
        self.assertIn("it went on", " ".join(result["end"][0]["notes"]))
        # 4096 samples of the example, 2 ranks: four steps an epoch.
        result = self.run_trainer(config(1, micro=512), ["--num_train_epochs", "1", "--length", "8"], steps=5)
        self.assertOk(result)
        # The rate falls over the steps that the arguments say, and is none after them.
        last = losses(self.run_trainer(config(1), ["--max_steps", "2", "--lr_scheduler_type", "constant"], steps=4))
        self.assertNotEqual(last[-1], losses(self.run_trainer(config(1), ["--max_steps", "2"], steps=4))[-1])

    def test_a_template_with_auto_everywhere_runs(self):
        for more in ({}, {"steps_per_print": 2000}):
            result = self.run_trainer({**ALL_AUTO, **more}, ["--learning_rate", "1e-3"])
            self.assertOk(result)
            reply = result["build"][0]
            self.assertEqual((reply["data_parallel_size"], reply["global_batch"]), (2, 4))
            self.assertEqual(reply["launch_arguments"], {"per_device_train_batch_size": 2, "use_cpu": True})
            self.assertTrue(reply["launch_arguments_are_words"])

    def test_operators_that_configurations_need_are_known_before(self):
        reply = ask_operators(self.world)
        self.assertEqual(reply["needed"], [["fused_adam"], [], ["cpu_adam"], ["fused_lion"], ["fused_lamb"], [],
                                           ["async_io"], []])
        operators = self.world.prepared[0]["operators"]
        for needed, lacking in zip(reply["needed"], reply["lacking"]):
            self.assertEqual(lacking, [name for name in needed if name not in operators["available"]])
        # On CPUs DeepSpeed has none: no command builds it.
        self.assertEqual(reply["lacking"][4], ["fused_lamb"])
        self.assertNotIn("fused_lamb", operators["missing"])

    def test_steps_that_the_configuration_states_are_its_own(self):
        ds_config = config(1, scheduler={"type": "WarmupDecayLR", "params": {
            "total_num_steps": 77, "warmup_max_lr": 1e-3, "warmup_num_steps": 2}})
        result = self.run_trainer(ds_config)
        self.assertOk(result)
        self.assertIn("total_num_steps is 77", " ".join(result["build"][0]["notes"]))


if __name__ == "__main__":
    main()
