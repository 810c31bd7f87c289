"""Each example of scripts/spaces/engine runs, with the arguments that its space.json has."""

import json
import os
import re
import unittest

from harness import EXAMPLES, ROOT, SKIPPED, World, config, losses, main


def space_of(name):
    with open(os.path.join(EXAMPLES, name, "space.json"), encoding="utf-8") as file:
        return json.loads(re.sub(r"^\s*//.*$", "", file.read(), flags=re.MULTILINE))


@unittest.skipIf(SKIPPED, SKIPPED)
class ExamplesTest(unittest.TestCase):
    def run_example(self, workload, stages, arguments=(), model=None, micro=4, batch_flag=None):
        world = World(2, workload, model)
        try:
            for reply in world.prepared:
                self.assertTrue(reply["ok"], reply)
            for stage in stages:
                words = list(arguments)
                if batch_flag:
                    words[words.index(batch_flag) + 1] = str(micro)
                result = world.experiment([0, 1], config(stage, micro=micro), arguments=words)
                for part in [result["build"], *result["steps"], result["end"]]:
                    for reply in part:
                        self.assertTrue(reply["ok"], reply)
                for reply in result["end"]:
                    self.assertEqual(reply["leaked"], [])
                self.assertTrue(all(0.0 < loss < 100.0 for loss in losses(result)))
        finally:
            world.close()

    def run_script(self, name, stages, **others):
        words = space_of(name)["dstune"]["training_command"].split()
        arguments = words[words.index("train.py") + 1:]
        self.run_example({"script": os.path.join(EXAMPLES, name, "train.py")}, stages, arguments, **others)

    def test_language_model(self):
        self.run_script("language-model", (0, 3))

    def test_lora(self):
        self.run_script("lora", (2, 3), batch_flag="--batch")

    def test_images(self):
        self.run_script("images", (1, 3), micro=8)

    def test_experts(self):
        workload = {key: value for key, value in space_of("experts")["dstune"]["workload"].items() if key != "type"}
        workload["script"] = os.path.join(EXAMPLES, "experts", workload["script"])
        self.run_example(workload, (0, 2))

    def test_random_tokens(self):
        with open(os.path.join(ROOT, "scripts", "spaces", "gpt2-tiny", "config.json"), encoding="utf-8") as file:
            self.run_example({}, (1, 3), model=file.read())

    def test_classes_and_spans(self):
        sizes = {"vocab_size": 100, "max_position_embeddings": 64}
        bert = {"model_type": "bert", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
                "intermediate_size": 64}
        distilbert = {"model_type": "distilbert", "dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 64}
        for head, base in (("BertForSequenceClassification", bert), ("BertForTokenClassification", bert),
                           ("DistilBertForQuestionAnswering", distilbert)):
            self.run_example({}, (1,), model=json.dumps({**base, **sizes, "architectures": [head]}))


if __name__ == "__main__":
    main()
