"""Opens a checkpoint of a training in Python, as MIR's users do.

Usage: open_in_python.py CHECKPOINT
A module with the names and shapes of MIR's VxmDense (configuration `tiny`)
takes the weights strictly, and Adam the optimizer's state.
"""

import sys

import torch
from torch import nn


class ConvBlock(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.main = nn.Conv3d(inputs, outputs, 3, stride, 1)


class Unet(nn.Module):
    def __init__(self):
        super().__init__()
        self.downarm = nn.ModuleList(
            [ConvBlock(2, 8, 2), ConvBlock(8, 16, 2), ConvBlock(16, 16, 2)])
        self.uparm = nn.ModuleList(
            [ConvBlock(16, 16, 1), ConvBlock(32, 16, 1), ConvBlock(24, 16, 1)])
        self.extras = nn.ModuleList([ConvBlock(18, 8, 1)])


class VxmDense(nn.Module):
    def __init__(self):
        super().__init__()
        self.unet_model = Unet()
        self.flow = nn.Conv3d(8, 3, 3, padding=1)


def main():
    checkpoint = torch.load(sys.argv[1], weights_only=True)
    for key in ("state_dict", "optimizer", "epoch", "step", "mir"):
        assert key in checkpoint, key
    assert checkpoint["mir"]["model"] == "voxelmorph"
    model = VxmDense()
    model.load_state_dict(checkpoint["state_dict"], strict=True)
    for name, weight in model.named_parameters():
        assert torch.isfinite(weight).all(), name
    optimizer = torch.optim.Adam(model.parameters())
    optimizer.load_state_dict(checkpoint["optimizer"])
    steps = {int(state["step"]) for state in optimizer.state.values()}
    assert steps == {checkpoint["step"]}, steps
    print("opened")


if __name__ == "__main__":
    main()
