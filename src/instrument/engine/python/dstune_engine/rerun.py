"""One configuration, run twice, gives the same losses: else the script keeps state."""

import json

# The first loss comes before any update; later ones carry the order of sums.
FIRST_TOLERANCE = 1e-4
LATER_TOLERANCE = 1e-2


class Losses:
    def __init__(self):
        self.known_ = {}

    def compare(self, order, losses):
        """A note, if the losses differ from those of the same run before."""
        keep = {key: order[key] for key in ("ds_config", "group_size", "group_rank", "seed", "sequence_length",
                                            "recompute", "micro_batch", "accumulation_steps")}
        keep["arguments"] = order.get("arguments")
        keep["own_model"] = order.get("own_model")
        key = json.dumps(keep, sort_keys=True)
        before = self.known_.setdefault(key, losses)
        if before is losses:
            return None
        coarse = any((order["ds_config"].get(name) or {}).get("enabled") for name in ("bf16", "fp16", "torch_autocast"))
        for number, (first, second) in enumerate(zip(before, losses), start=1):
            if first is None or second is None:
                continue
            tolerance = (FIRST_TOLERANCE if number == 1 else LATER_TOLERANCE) * (20 if coarse else 1)
            if abs(first - second) > tolerance * max(abs(first), abs(second)):
                return (f"the script is not re-runnable: the same configuration and seed gave a loss of {first:.6g} in "
                        f"step {number} before, and {second:.6g} now; it keeps state between runs (files, module "
                        "globals of libraries, random numbers that no seed sets)")
        if len(losses) > len(before):
            self.known_[key] = losses
        return None
