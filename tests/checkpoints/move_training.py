#!/usr/bin/env python3
"""Moves trainings between Python and C++, both ways, and compares.

usage: move_training.py PROGRAM CHECKPOINT_TOOL FOLDER

A small module, and a VxmDense: with MIR_PYTHON_SRC, the folder that holds the
package MIR, it is MIR's own, else one of the same names, shapes and order.
"""

import importlib
import json
import os
import subprocess
import sys
import types

import torch
from torch import nn

STEPS = 3
TOLERANCE = 1e-5


class Small(torch.nn.Module):
    """The module of move_training.cc."""

    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv3d(2, 4, 3)
        self.norm = torch.nn.BatchNorm3d(4)
        self.head = torch.nn.Linear(4, 3)
        self.register_buffer("relative_position_index", torch.arange(16).view(4, 4))

    def loss(self):
        x = torch.linspace(-1, 1, 2 * 2 * 125).view(2, 2, 5, 5, 5)
        features = torch.relu(self.norm(self.conv(torch.sin(3 * x * x.abs()))))
        return (self.head(features.mean((2, 3, 4))) - 1).pow(2).mean()


CONFIG = {
    "img_size": [8, 16, 8],
    "nb_unet_features": [[4, 8], [8, 8, 4]],
    "nb_unet_levels": None,
    "unet_feat_mult": 1,
    "use_probs": False,
    "gen_output": True,
}


class ConvBlock(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.main = nn.Conv3d(inputs, outputs, 3, stride, 1)

    def forward(self, x):
        return nn.functional.leaky_relu(self.main(x), 0.2)


class Grid(nn.Module):
    def __init__(self, size):
        super().__init__()
        axes = torch.meshgrid(*map(torch.arange, size), indexing="ij")
        self.register_buffer("grid", torch.stack(axes).float()[None])


class StandIn(nn.Module):
    """What MIR's VxmDense holds and computes, but for its warp."""

    def __init__(self):
        super().__init__()
        self.unet_model = nn.Module()
        self.unet_model.downarm = nn.ModuleList(
            [ConvBlock(2, 4, 2), ConvBlock(4, 8, 2)])
        self.unet_model.uparm = nn.ModuleList(
            [ConvBlock(8, 8, 1), ConvBlock(12, 8, 1)])
        self.unet_model.extras = nn.ModuleList([ConvBlock(10, 4, 1)])
        self.flow = nn.Conv3d(4, 3, 3, padding=1)
        nn.init.normal_(self.flow.weight, 0, 1e-5)
        nn.init.zeros_(self.flow.bias)
        self.transformer = Grid(CONFIG["img_size"])

    def forward(self, images):
        x = torch.cat(images, 1)
        skipped = []
        for block in self.unet_model.downarm:
            skipped.append(x)
            x = block(x)
        for block in self.unet_model.uparm:
            x = nn.functional.interpolate(block(x), scale_factor=2)
            x = torch.cat([x, skipped.pop()], 1)
        for block in self.unet_model.extras:
            x = block(x)
        return None, self.flow(x)


def mir_vxm_dense(folder):
    """MIR's class, without what MIR's __init__ files import besides."""
    for name in ("MIR", "MIR.models"):
        package = types.ModuleType(name)
        package.__path__ = [os.path.join(folder, *name.split("."))]
        sys.modules[name] = package
    module = importlib.import_module("MIR.models.VoxelMorph")
    return module.VxmDense(types.SimpleNamespace(**CONFIG), gen_output=True)


class Vxm(nn.Module):
    """The module of move_training.cc: a VxmDense and a loss."""

    def __init__(self):
        super().__init__()
        folder = os.environ.get("MIR_PYTHON_SRC")
        self.model = mir_vxm_dense(folder) if folder else StandIn()

    def loss(self):
        x = torch.linspace(-1, 1, 1024).view(1, 1, 8, 16, 8)
        moving = torch.sin(9 * x)
        _, flow = self.model((moving, torch.cos(7 * x)))
        return (flow - moving).pow(2).mean()

    def state_dict(self):
        return self.model.state_dict()

    def load_state_dict(self, state, strict):
        return self.model.load_state_dict(state, strict)


def make_module(name):
    return Small() if name == "small" else Vxm()


def make_optimizer(name, module):
    """The optimizers of move_training.cc, with other options, which loading
    replaces."""
    if name == "adam":
        return torch.optim.Adam(module.parameters(), lr=0.5)
    if name == "adamw":
        return torch.optim.AdamW(module.parameters(), lr=0.5)
    return torch.optim.SGD(module.parameters(), lr=0.5)


def train(module, optimizer):
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = module.loss()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def values():
    """What move_training.cc holds too, of every kind."""
    base = torch.arange(24, dtype=torch.float32)
    dtypes = ("uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64 "
              "bool uint16")
    tensors = {name: torch.arange(2).to(getattr(torch, name))
               for name in dtypes.split()}
    tensors["base"] = base
    tensors["view"] = base.view(4, 6)[:, 2:5]
    tensors["transposed"] = base.view(4, 6).t()
    tensors["expanded"] = base[:3].expand(4, 3)
    tensors["scalar"] = torch.tensor(2.5)
    tensors["empty"] = torch.empty(0, 3)
    return {
        "ints": [0, 255, 256, 65536, -1, 1 << 40],
        "floats": (0.1, -2.5e300),
        "none": None,
        "text": "été",
        "bytes": b"\x01\xff",
        "dtype": torch.bfloat16,
        7: [True, False, (), {}],
        "tensors": tensors,
    }


def same(a, b):
    if isinstance(a, torch.Tensor):
        return (a.dtype == b.dtype and a.shape == b.shape
                and a.stride() == b.stride()
                and torch.equal(bits(a), bits(b)))
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return (type(a) is type(b) and len(a) == len(b)
                and all(map(same, a, b)))
    return type(a) is type(b) and a == b


def check(condition, what):
    if not condition:
        sys.exit("FAILED: " + what)


def close(a, b):
    return all(abs(x - y) <= TOLERANCE * abs(y) for x, y in zip(a, b, strict=True))


def bits(tensor):
    return tensor.contiguous().view(-1).view(torch.uint8)


def from_cpp(tool, kind, name, path):
    """Goes on in Python with what C++ saved; returns the training."""
    if kind == "vxm":
        # MIR's strict loading wants the grid that our files leave out.
        config = path + ".json"
        with open(config, "w", encoding="utf-8") as file:
            json.dump(CONFIG, file)
        subprocess.run(
            [tool, "convert", path, path + ".for_mir.pth", "--for-mir",
             "--model", "voxelmorph", "--config", config], check=True)
        ours, path = torch.load(path, weights_only=True), path + ".for_mir.pth"
        for key, value in ours["state_dict"].items():
            other = torch.load(path, weights_only=True)["state_dict"][key]
            check(torch.equal(bits(value), bits(other)), "converted " + key)
    for mmap in (False, True):
        checkpoint = torch.load(path, weights_only=True, mmap=mmap)
        check(checkpoint["epoch"] == 3, "the epoch")
        check(same(values(), checkpoint["values"]), "the values")
        tensors = checkpoint["values"]["tensors"]
        check(tensors["view"].untyped_storage().data_ptr()
              == tensors["base"].untyped_storage().data_ptr(),
              "a shared storage is shared no more")
    state = checkpoint["state_dict"]
    module = make_module(kind)
    fresh = module.state_dict()
    check(list(state) == list(fresh), "the names or their order")
    # Modules without parameters need not be in ours.
    check(all(fresh._metadata.get(key) == value
              for key, value in state._metadata.items()), "the _metadata")
    check(kind != "small" or state._metadata == fresh._metadata,
          "the _metadata of all modules")
    module.load_state_dict(state, strict=True)
    optimizer = make_optimizer(name, module)
    own = optimizer.state_dict()["param_groups"][0]
    saved = checkpoint["optimizer"]["param_groups"][0]
    check(list(saved) == list(own), "the options of the optimizer")
    optimizer.load_state_dict(checkpoint["optimizer"])
    losses = train(module, optimizer)
    check(close(losses, checkpoint["next_losses"]),
          f"losses after loading: {losses}, not {checkpoint['next_losses']}")
    print(f"{kind} {name}: next losses C++ {checkpoint['next_losses']}, "
          f"Python {losses}")
    return module, optimizer


def to_cpp(program, kind, name, module, optimizer, folder):
    """Saves in each way that Python users do, for C++ to go on."""
    path = f"{folder}/python_{kind}_{name}.pth"
    checkpoint = {
        "epoch": 6,
        "state_dict": module.state_dict(),
        "optimizer": optimizer.state_dict(),
        "values": values(),
    }
    torch.save(checkpoint, path)
    checkpoint = torch.load(path, weights_only=True)  # Not to be changed below.
    checkpoint["next_losses"] = train(module, optimizer)
    torch.save(checkpoint, path)
    legacy = f"{folder}/python_{kind}_{name}_legacy.pth"
    torch.save(checkpoint, legacy, _use_new_zipfile_serialization=False)
    wrapped = f"{folder}/python_{kind}_{name}_wrapped.pth"
    state = {"module._orig_mod." + key: value
             for key, value in checkpoint["state_dict"].items()}
    torch.save({**checkpoint, "state_dict": state}, wrapped)
    newer = f"{folder}/python_{kind}_{name}_protocol.pth"
    torch.save(checkpoint, newer, pickle_protocol=4)
    for file in (path, legacy, wrapped, newer):
        subprocess.run([program, "read", kind, name, file], check=True)


def move(program, tool, kind, name, folder):
    path = f"{folder}/cpp_{kind}_{name}.pth"
    subprocess.run([program, "write", kind, name, path], check=True)
    subprocess.run([program, "read", kind, name, path], check=True)
    module, optimizer = from_cpp(tool, kind, name, path)
    to_cpp(program, kind, name, module, optimizer, folder)


def convert(tool, folder):
    """pth -> safetensors -> pth by the tool, and by Python's safetensors where
    it is there."""
    source = f"{folder}/cpp_small_adamw.pth"
    subprocess.run([tool, "convert", source, f"{folder}/a.safetensors"],
                   check=True)
    subprocess.run([tool, "convert", f"{folder}/a.safetensors",
                    f"{folder}/a.pth"], check=True)
    wanted = torch.load(source, weights_only=True)["state_dict"]
    states = [torch.load(f"{folder}/a.pth", weights_only=True, mmap=True)]
    try:
        from safetensors.torch import load_file, save_file
    except ImportError:
        print("without Python's safetensors")
    else:
        states.append(load_file(f"{folder}/a.safetensors"))
        save_file(dict(wanted), f"{folder}/b.safetensors")
        subprocess.run([tool, "convert", f"{folder}/b.safetensors",
                        f"{folder}/b.pth"], check=True)
        states.append(torch.load(f"{folder}/b.pth", weights_only=True))
    for state in states:
        check(set(state) == set(wanted), "the names after converting")
        for key, value in wanted.items():
            check(state[key].dtype == value.dtype
                  and state[key].shape == value.shape
                  and torch.equal(bits(state[key]), bits(value)), key)


def main():
    program, tool, folder = sys.argv[1:]
    for name in ("adam", "adamw", "sgd"):
        move(program, tool, "small", name, folder)
    move(program, tool, "vxm", "adamw", folder)
    convert(tool, folder)
    print("torch", torch.__version__, "and C++ agree, with",
          "MIR's VxmDense" if os.environ.get("MIR_PYTHON_SRC") else "a stand-in"
          " for VxmDense")


if __name__ == "__main__":
    main()
