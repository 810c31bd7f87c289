"""Training without a script's loop: a function `make` of the user's, or random tokens.

All end in one loop over the engine, whose methods are watched as a script's are.
"""

import contextlib
import itertools
import json
import os
import sys

from . import own_model, script
from .errors import Refused


def to_device(value, device):
    torch = sys.modules["torch"]
    if isinstance(value, torch.Tensor):
        return value.to(device)
    if isinstance(value, dict) or hasattr(value, "items"):
        return {key: to_device(one, device) for key, one in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(to_device(one, device) for one in value))
    if isinstance(value, (list, tuple)):
        return type(value)(to_device(one, device) for one in value)
    return value


def call_engine(engine, batch):
    if isinstance(batch, dict) or hasattr(batch, "keys"):
        return engine(**batch)
    if isinstance(batch, (list, tuple)):
        return engine(*batch)
    return engine(batch)


def loss_in(output):
    from .steps import scalar_in
    loss = scalar_in(output)
    if loss is None:
        raise Refused("the model returns no scalar loss: its output, its `loss` or the first of its outputs has to be "
                      "one, or `make` returns (model, batch, loss)")
    return loss


def data_rank(engine, order):
    """Ranks that share a batch (tensor, sequence, pipeline parallel) have one number."""
    size = int(engine.dp_world_size)
    return order["group_rank"] * size // order["group_size"], size


def train(engine, order, loss_of_next):
    """Optimizer steps until the program has enough."""
    for _ in itertools.count():
        for _ in range(order["accumulation_steps"]):
            engine.backward(loss_of_next())
            engine.step()


def engine_for(model, order):
    import deepspeed
    parameters = [one for one in model.parameters() if one.requires_grad]
    return deepspeed.initialize(model=model, model_parameters=parameters, config=order["ds_config"])[0]


def run_made(path, name, order):
    """`make(ds_config, seed)` of the user's file."""
    make = getattr(script.load(path), name, None)
    if not callable(make):
        raise Refused(f"{path} has no function {name!r}; function names it")
    made = make(order["ds_config"], order["seed"])
    if not isinstance(made, tuple) or len(made) not in (2, 3):
        raise Refused(f"{name} returns neither (model, batch, loss) nor (engine, next_batch)")
    if len(made) == 2:
        engine, next_batch = made
        if not hasattr(engine, "train_micro_batch_size_per_gpu"):
            raise Refused(f"the first of the two that {name} returns is no engine of DeepSpeed")
        if hasattr(engine, "train_batch"):
            batches = iter(next_batch, object())
            for _ in itertools.count():
                engine.train_batch(batches)
        train(engine, order, lambda: loss_in(call_engine(engine, to_device(next_batch(), engine.device))))
        return
    model, batch, loss = made
    engine = engine_for(model, order)
    rank, size = data_rank(engine, order)
    count = itertools.count()

    def loss_of_next():
        seed = order["seed"] * 1_000_003 + next(count) * size + rank
        return loss(engine, to_device(batch(order["micro_batch"], seed), engine.device))

    train(engine, order, loss_of_next)


def clean_up(path):
    """The user's own `cleanup`, if there is one."""
    name = os.path.splitext(os.path.basename(path))[0]
    function = getattr(sys.modules.get(name), "cleanup", None)
    if callable(function):
        function()


@contextlib.contextmanager
def made_on_gpu(order):
    """Weights begin on the GPU, in the type of training: on a processor's core that takes seconds."""
    torch = sys.modules["torch"]
    config = order["ds_config"]
    if order["backend"] != "nccl" or config.get("zero_optimization", {}).get("stage") == 3:
        yield  # stage 3 makes them there itself, in parts
        return
    before = torch.get_default_dtype()
    for key, dtype in (("bf16", torch.bfloat16), ("fp16", torch.float16)):
        if config.get(key, {}).get("enabled"):
            torch.set_default_dtype(dtype)
    try:
        with torch.device("cuda", order["device_index"]):
            yield
    finally:
        torch.set_default_dtype(before)


HEADS = ("ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering")


def head_of(config):
    """How the class of the model ends: as the first one that the configuration names, else a language model's."""
    named = (config.architectures or [""])[0]
    for head in HEADS:
        if named.endswith(head):
            return head
    masked = config.model_type in ("bert", "roberta", "distilbert", "albert", "electra", "deberta-v2", "xlm-roberta")
    return "ForMaskedLM" if masked else "ForCausalLM"


def targets_of(head, config, tokens):
    """What the model takes its loss of, made of the tokens."""
    first, last = tokens[:, 0], tokens[:, -1]
    if head == "ForSequenceClassification":
        return {"labels": first % config.num_labels}
    if head == "ForTokenClassification":
        return {"labels": tokens % config.num_labels}
    if head == "ForQuestionAnswering":
        return {"start_positions": first % tokens.shape[1], "end_positions": last % tokens.shape[1]}
    return {"labels": tokens}


def model_of_config(text, order):
    """A model of transformers, of the configuration alone."""
    import transformers
    given = dict(json.loads(text))
    if "model_type" not in given:
        raise Refused("config.json has no model_type, which transformers need")
    config = transformers.AutoConfig.for_model(given.pop("model_type"), **given)
    config.use_cache = False
    kind = getattr(transformers, "AutoModel" + head_of(config))
    keep = None
    if order["ds_config"].get("zero_optimization", {}).get("stage") == 3:
        from transformers.integrations import HfDeepSpeedConfig
        keep = HfDeepSpeedConfig(order["ds_config"])  # its weak reference makes from_config partition
    with made_on_gpu(order):
        model = kind.from_config(config)
    del keep
    if order.get("recompute") == "selective":
        raise Refused("a model of transformers has no selective recompute; use none or block")
    if order.get("recompute") == "block":
        model.gradient_checkpointing_enable()
    model.train()
    return model, config


def token_batches(order, engine, vocabulary):
    """A function that makes this rank's next batch of random tokens."""
    torch = sys.modules["torch"]
    rank, size = data_rank(engine, order)
    count = itertools.count()

    def next_batch():
        generator = torch.Generator().manual_seed(order["seed"] * 1_000_003 + next(count) * size + rank)
        return torch.randint(vocabulary, (order["micro_batch"], order["sequence_length"]),
                             generator=generator).to(engine.device)

    return next_batch


def run_random_tokens(text, order):
    """Random tokens through a model of config.json; the loss is the model's own."""
    model, config = model_of_config(text, order)
    engine = engine_for(model, order)
    vocabulary = getattr(config, "vocab_size", None) or config.get_text_config().vocab_size
    next_batch = token_batches(order, engine, vocabulary)

    def loss_of_next():
        tokens = next_batch()
        return loss_in(engine(input_ids=tokens, **targets_of(head_of(config), config, tokens)))

    train(engine, order, loss_of_next)


def run_own_model(order):
    """Random tokens through a model of ours."""
    engine = engine_for(own_model.make(order["own_model"]), order)
    next_batch = token_batches(order, engine, order["own_model"]["vocab_size"])
    train(engine, order, lambda: engine(next_batch()))
