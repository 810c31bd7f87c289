"""The user's script, unchanged, in the ranks of a job: what runs, what is refused, what it costs."""

import os
import time

from harness import EngineTest, HERE, config, losses, main


class ScriptTest(EngineTest):
    @classmethod
    def workload(cls):
        return {"workload": {"script": os.path.join(HERE, "cases.py")}}

    def run_case(self, case, ds_config=None, steps=3, words=(), members=(0, 1), **others):
        arguments = ["--case", case, *words, "--deepspeed_config", "$CONFIG"]
        return self.world.experiment(members, ds_config or config(), steps, arguments=arguments,
                                     folder=self.folder, **others)

    def good(self):
        """After whatever came before, a good experiment runs."""
        self.assertOk(self.run_case("plain"))

    def test_stages_and_buckets_give_the_same_losses(self):
        first = None
        for stage in (0, 1, 2, 3):
            result = self.run_case("plain", config(stage, micro=4, accumulation=2), steps=4)
            self.assertOk(result)
            first = first or losses(result)
            for one, other in zip(first, losses(result)):
                self.assertAlmostEqual(one, other, delta=1e-5 * abs(one))

    def test_a_tiny_model_of_ours_trains_in_place_of_the_script(self):
        shape = {"hidden_size": 64, "num_layers": 2, "num_heads": 4, "intermediate_size": 256, "vocab_size": 512,
                 "max_positions": 32}
        layer = 12 * 64 * 64 + 13 * 64
        for stage in (0, 1, 2, 3):
            result = self.world.experiment([0, 1], config(stage, micro=1), 8, own_model=shape, folder=self.folder)
            self.assertOk(result)
            self.assertEqual(result["build"][0]["parameters"], 2 * layer + (512 + 32 + 2) * 64)
            self.assertLess(losses(result)[-1], 8)
        self.good()

    def test_the_reply_to_build_has_what_the_engine_has(self):
        result = self.run_case("plain", config(3, micro=4, accumulation=2))
        reply = result["build"][0]
        self.assertEqual(reply["parameters"], 16 * 16 + 16 + 16 + 1)
        self.assertEqual((reply["data_parallel_size"], reply["global_batch"]), (2, 16))
        self.assertTrue(reply["sockets"])
        step = result["steps"][0][0]
        self.assertEqual(step["samples"], 8)
        self.assertLess(step["forward_s"] + step["backward_s"] + step["update_s"], step["step_s"])
        self.assertGreater(step["peak_resident_bytes"], 1 << 28)

    def test_the_time_between_commands_does_not_count(self):
        group = self.world.begin([0, 1], config(), arguments=["--deepspeed_config", "$CONFIG"], folder=self.folder)
        for rank in group:
            self.assertTrue(rank.receive()["ok"])
        self.world.ask(group, "step", number=1)
        time.sleep(2.0)
        self.assertLess(self.world.ask(group, "step", number=2)[0]["step_s"], 1.5)
        self.world.ask(group, "end", failed=False)

    def test_groups_of_one_run_at_the_same_time(self):
        arguments = ["--deepspeed_config", "$CONFIG"]
        groups = [self.world.begin([number], config(stage), arguments=arguments, folder=self.folder)
                  for number, stage in ((0, 1), (1, 3))]
        for result in [self.world.finish(group) for group in groups]:
            self.assertOk(result)
            self.assertEqual(result["build"][0]["data_parallel_size"], 1)

    def test_an_exception_costs_its_experiment(self):
        error = self.assertFails(self.run_case("exception"), "exception", "ValueError: case of rank 0")
        self.assertIn("cases.py", error["traceback"])
        self.good()

    def test_a_rank_that_waits_for_one_that_failed_is_interrupted(self):
        group = self.world.begin([0, 1], config(2), folder=self.folder,
                                 arguments=["--case", "exception", "--rank", "1", "--deepspeed_config", "$CONFIG"])
        for rank in group:
            self.assertTrue(rank.receive()["ok"])
        self.world.ask(group, "step", number=1)
        for rank in group:
            rank.send("step", number=2)
        self.assertEqual(group[1].receive()["error"]["kind"], "exception")
        with self.assertRaises(TimeoutError):
            group[0].receive(deadline_s=2.0)  # it waits in a collective
        self.assertFalse(group[0].interrupt(deadline_s=20.0)["ok"])
        for reply in self.world.ask(group, "end", failed=True):
            self.assertTrue(reply["ok"])
            self.assertEqual(reply["leaked"], [])
        self.good()

    def test_a_peer_that_never_comes_does_not_hold_a_rank(self):
        group = self.world.begin([0, 1], config(), folder=self.folder, missing=[1])[:1]
        with self.assertRaises(TimeoutError):
            group[0].receive(deadline_s=2.0)  # it waits in the store
        self.assertFalse(group[0].interrupt(deadline_s=30.0)["ok"])
        self.assertTrue(self.world.ask(group, "end", failed=True)[0]["ok"])
        self.good()

    def test_an_endless_loop_is_interrupted(self):
        group = self.world.begin([0], config(), folder=self.folder,
                                 arguments=["--case", "sleep", "--deepspeed_config", "$CONFIG"])
        self.assertTrue(group[0].receive()["ok"])
        self.world.ask(group, "step", number=1)
        group[0].send("step", number=2)
        with self.assertRaises(TimeoutError):
            group[0].receive(deadline_s=1.0)
        self.assertEqual(group[0].interrupt(shutdown=False)["error"]["kind"], "interrupted")
        self.assertTrue(self.world.ask(group, "end", failed=True)[0]["ok"])
        self.good()

    def test_an_exception_before_the_engine(self):
        self.assertFails(self.run_case("early"), "exception", "before the engine")
        self.good()

    def test_what_deepspeed_refuses_is_the_result(self):
        result = self.run_case("plain", config(7))
        self.assertFails(result, "exception", "stage")
        self.good()

    def test_an_optimizer_that_fails_half_made_leaves_nothing(self):
        zenflow = {"offload_optimizer": {"device": "cpu"},
                   "zenflow": {"topk_ratio": 0.1, "update_interval": 2, "full_warm_up_rounds": 0}}
        result = self.run_case("plain", config(2, zero=zenflow, zero_force_ds_cpu_optimizer=False))
        self.assertFalse(result["build"][0]["ok"])  # its optimizer does not know torch_adam
        for reply in result["end"]:
            self.assertEqual(reply["leaked"], [])
        self.good()

    def test_memory_runs_out_and_comes_back(self):
        result = self.run_case("memory", members=(0,), memory_limit_bytes=1 << 29)
        self.assertFails(result, "out_of_memory", "allocate memory")
        self.assertLess(result["end"][0]["resident_bytes"], 3 << 29)
        self.good()

    def test_a_script_that_ends_or_leaves_is_told(self):
        self.assertFails(self.run_case("plain", words=["--epochs", "1", "--samples", "4"], steps=5), "refused",
                         "the script ended after 2 optimizer steps")
        self.assertFails(self.run_case("exit"), "refused", "sys.exit(7)")
        self.assertFails(self.run_case("uninitialized"), "refused", "without calling deepspeed.initialize")
        self.good()

    def test_a_script_that_measures_something_else_is_refused(self):
        self.assertFails(self.run_case("plain", words=["--batch", "3"]), "refused",
                         "is 3, and train_micro_batch_size_per_gpu is 2")
        self.assertFails(self.run_case("boundaries", config(accumulation=4)), "refused",
                         "takes 1 micro-steps for an optimizer step, and gradient_accumulation_steps is 4")
        self.assertFails(self.run_case("twice"), "refused", "twice")
        self.good()

    def test_a_short_last_batch_is_not_timed(self):
        result = self.run_case("plain", config(micro=4), words=["--samples", "10"], steps=7)
        self.assertOk(result)
        self.assertEqual([step[0]["skipped"] for step in result["steps"]],
                         [False, False, True, False, False, True, False])
        self.assertIn("2 samples instead of 4", " ".join(result["end"][0]["notes"]))

    def test_no_process_is_started(self):
        for case, text in (("subprocess", "make-a-process now"), ("fork", "os.fork"), ("multiprocessing", "process")):
            self.assertFails(self.run_case(case), "refused", text)
        self.assertOk(self.run_case("workers"))
        self.good()

    def test_loader_workers_are_named(self):
        group = self.run_case("workers", config(micro=8))
        self.assertOk(group)

    def test_an_operator_that_is_not_built_is_named(self):
        ds_config = config(optimizer={"type": "Adagrad", "params": {"lr": 1e-3}},
                           zero={"offload_optimizer": {"device": "cpu"}}, stage=2)
        missing = self.world.prepared[0]["operators"]["missing"]
        if "cpu_adagrad" not in missing:
            self.assertOk(self.run_case("plain", ds_config))
            return
        self.assertFails(self.run_case("plain", ds_config), "refused", missing["cpu_adagrad"])

    def test_operators_that_are_built_are_taken(self):
        for name, zero in (("fused_adam", {}), ("cpu_adam", {"offload_optimizer": {"device": "cpu"}})):
            ds_config = config(optimizer={"type": "AdamW", "params": {"lr": 1e-3}}, zero=zero, stage=2)
            result = self.run_case("plain", ds_config)
            if name in self.world.prepared[0]["operators"]["available"]:
                self.assertOk(result)
                self.assertLess(losses(result)[-1], losses(result)[0])
            else:
                self.assertFails(result, "refused", name)

    def test_everything_around_the_script_is_put_back(self):
        before = losses(self.run_case("plain"))
        self.assertOk(self.run_case("disturb"))
        result = self.run_case("undisturbed")
        self.assertOk(result)
        self.assertEqual(losses(result), before)

    def test_a_script_that_swallows_everything_ends_all_the_same(self):
        self.assertOk(self.run_case("swallows"))
        self.assertFails(self.run_case("swallows", words=["--batch", "3"]), "refused", "is 3")

    def test_evaluation_before_the_training_does_not_count(self):
        self.assertOk(self.run_case("evaluates"))

    def test_a_script_that_keeps_state_is_named(self):
        self.assertOk(self.run_case("state", config(1)))
        result = self.run_case("state", config(1))
        self.assertIn("not re-runnable", " ".join(result["end"][0]["notes"]))

    def test_what_the_script_wrote_is_named_once(self):
        path = os.path.join(self.folder, "written.txt")
        self.assertEqual(self.run_case("writes")["end"][0]["wrote"], [path])
        self.assertEqual(self.run_case("writes")["end"][0]["wrote"], [])
        self.assertFalse(os.path.exists(os.path.join(self.folder, "checkpoints")))

    def test_a_failure_tells_what_the_script_wrote(self):
        result = self.run_case("fails_with_a_file")
        error = self.assertFails(result, "exception", "it has written")
        self.assertEqual(error["wrote"], [os.path.join(self.folder, "left.txt")])
        self.assertEqual(result["end"][0]["wrote"], [])


if __name__ == "__main__":
    main()
