"""A small residual network for 28 by 28 grey images: four stages of what ResNet does, in 77,000 weights."""

from __future__ import annotations

from typing import Any

from paddle import nn
from paddle.nn import functional


def build() -> Any:
    return nn.Sequential(
        nn.Conv2D(1, 16, 3, stride=2, padding=1, bias_attr=False),
        nn.BatchNorm2D(16),
        nn.ReLU(),
        ResidualBlock(16, 16, stride=1),
        ResidualBlock(16, 32, stride=2),
        ResidualBlock(32, 64, stride=2),
        nn.AdaptiveAvgPool2D(1),
        nn.Flatten(),
        nn.Linear(64, 10),
    )


class ResidualBlock(nn.Layer):  # type: ignore[misc,unused-ignore]
    """Two convolutions whose result is added to their input, so that a block starts as a small correction."""

    def __init__(self, channels_in: int, channels_out: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2D(channels_in, channels_out, 3, stride=stride, padding=1, bias_attr=False)
        self.first_norm = nn.BatchNorm2D(channels_out)
        self.second = nn.Conv2D(channels_out, channels_out, 3, padding=1, bias_attr=False)
        self.second_norm = nn.BatchNorm2D(channels_out)
        self.shortcut = nn.Identity()
        if (
            stride != 1 or channels_in != channels_out
        ):  # the input has to be brought to the shape of the result
            projection = nn.Conv2D(channels_in, channels_out, 1, stride=stride, bias_attr=False)
            self.shortcut = nn.Sequential(projection, nn.BatchNorm2D(channels_out))

    def forward(self, images: Any) -> Any:
        hidden = functional.relu(self.first_norm(self.first(images)))
        return functional.relu(self.second_norm(self.second(hidden)) + self.shortcut(images))
