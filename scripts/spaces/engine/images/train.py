"""Trains a small convolutional network on images: `deepspeed train.py --deepspeed_config ds_config.json`."""

import argparse

import deepspeed
import torch
from torch import nn
from torch.utils.data import TensorDataset


def network(classes):
    layers, width = [], 3
    for wider in (32, 64, 128):
        layers += [nn.Conv2d(width, wider, 3, padding=1), nn.BatchNorm2d(wider), nn.ReLU(), nn.MaxPool2d(2)]
        width = wider
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(width * 4 * 4, classes))


def images(samples, classes):
    """Stands for a data set of images of 32 x 32: each class has a brightness of its own."""
    labels = torch.arange(samples) % classes
    return TensorDataset(torch.randn(samples, 3, 32, 32) + labels.view(-1, 1, 1, 1) / classes, labels)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--local_rank", type=int, default=-1)
    parser.add_argument("--epochs", type=int, default=50)
    deepspeed.add_config_arguments(parser)
    args = parser.parse_args()

    torch.manual_seed(0)
    model = network(classes=10)
    engine, _, loader, _ = deepspeed.initialize(args=args, model=model, model_parameters=model.parameters(),
                                                training_data=images(1024, 10))
    criterion = nn.CrossEntropyLoss()
    for _ in range(args.epochs):
        for inputs, labels in loader:
            loss = criterion(engine(inputs.to(engine.device)), labels.to(engine.device))
            engine.backward(loss)
            engine.step()


if __name__ == "__main__":
    main()
