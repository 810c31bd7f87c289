#!/usr/bin/env python3
"""Writes loss_scales.json: what DeepSpeed's own scalers make of sequences of overflows.

Needs PyTorch and DeepSpeed: python3 loss_scales.py loss_scales.json
"""
import json
import random
import sys
import types

import torch
import deepspeed
from deepspeed.runtime.fp16 import loss_scaler
from deepspeed.runtime.fp16.fused_optimizer import FP16_Optimizer

# It asks for its rank before it logs.
loss_scaler.dist = types.SimpleNamespace(get_rank=lambda: 1)

SETTINGS = [
    {"initial_scale_power": 16, "loss_scale_window": 1000, "hysteresis": 2,
     "consecutive_hysteresis": False, "min_loss_scale": 1},
    {"initial_scale_power": 4, "loss_scale_window": 3, "hysteresis": 2,
     "consecutive_hysteresis": False, "min_loss_scale": 1},
    {"initial_scale_power": 8, "loss_scale_window": 2, "hysteresis": 3,
     "consecutive_hysteresis": True, "min_loss_scale": 4},
    {"initial_scale_power": 24, "loss_scale_window": 1, "hysteresis": 1,
     "consecutive_hysteresis": False, "min_loss_scale": 1},
    {"initial_scale_power": 10, "loss_scale_window": 5, "hysteresis": 4,
     "consecutive_hysteresis": False, "min_loss_scale": 3},
    {"initial_scale_power": 0, "loss_scale_window": 2, "hysteresis": 2,
     "consecutive_hysteresis": True, "min_loss_scale": 16},
    {"initial_scale_power": 6, "loss_scale_window": 4, "hysteresis": 0,
     "consecutive_hysteresis": False, "min_loss_scale": 1},
]


def arguments(settings):
    return {
        loss_scaler.INITIAL_LOSS_SCALE: 2 ** settings["initial_scale_power"],
        loss_scaler.SCALE_WINDOW: settings["loss_scale_window"],
        loss_scaler.DELAYED_SHIFT: settings["hysteresis"],
        loss_scaler.CONSECUTIVE_HYSTERESIS: settings["consecutive_hysteresis"],
        loss_scaler.MIN_LOSS_SCALE: settings["min_loss_scale"],
    }


def zero_scales(settings, overflows):
    """Stages 1 to 3: the scale after every step; null where DeepSpeed raises, and nothing after."""
    scaler = loss_scaler.CreateLossScaler(torch.half, 1.0, True, arguments(settings))
    scales = []
    for overflow in overflows:
        try:
            scaler.update_scale(overflow)
        except Exception:
            scales.append(None)
            break
        scales.append(float(scaler.cur_scale))
    return scales


def stage_0_scales(settings, overflows):
    optimizer = types.SimpleNamespace(verbose=False, loss_scale_config=loss_scaler.LossScaleConfig(
        low_precision_dtype=torch.half, dynamic_loss_scale=True, static_loss_scale=0,
        dynamic_loss_args=arguments(settings)))
    scales = []
    for overflow in overflows:
        FP16_Optimizer._update_scale(optimizer, overflow)
        scales.append(float(optimizer.loss_scale_config.cur_scale))
    return scales


def main():
    draw = random.Random(7)
    cases = []
    for settings in SETTINGS:
        sequences = [[draw.random() < share for _ in range(60)] for share in (0.1, 0.4, 0.8)]
        sequences += [[True] * 30, [False] * 20, [True, False] * 15,
                      [True] * 5 + [False] * 12 + [True] * 9]
        for overflows in sequences:
            cases.append({**settings, "overflows": [int(flag) for flag in overflows],
                          "stage_0": stage_0_scales(settings, overflows),
                          "zero": zero_scales(settings, overflows)})
    lines = ",\n".join(json.dumps(case) for case in cases)
    # DeepSpeed logs to the standard output.
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        file.write('{"made_by": "python3 loss_scales.py loss_scales.json, with DeepSpeed '
                   f'{deepspeed.__version__}",\n"cases": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
