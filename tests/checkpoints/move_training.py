#!/usr/bin/env python3
"""Moves a training between Python and C++, both ways, and compares.

usage: move_training.py PROGRAM FOLDER
"""

import subprocess
import sys

import torch

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
                and torch.equal(a.double(), b.double()))
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


def from_cpp(name, path):
    """Goes on in Python with what C++ saved; returns the training."""
    for mmap in (False, True):
        checkpoint = torch.load(path, weights_only=True, mmap=mmap)
        check(checkpoint["epoch"] == 3, "the epoch")
        check(same(values(), checkpoint["values"]), "the values")
        tensors = checkpoint["values"]["tensors"]
        check(tensors["view"].untyped_storage().data_ptr()
              == tensors["base"].untyped_storage().data_ptr(),
              "a shared storage is shared no more")
    state = checkpoint["state_dict"]
    module = Small()
    fresh = module.state_dict()
    check(list(state) == list(fresh), "the names or their order")
    check(state._metadata == fresh._metadata, "the _metadata")
    module.load_state_dict(state, strict=True)
    optimizer = make_optimizer(name, module)
    own = optimizer.state_dict()["param_groups"][0]
    saved = checkpoint["optimizer"]["param_groups"][0]
    check(list(saved) == list(own), "the options of the optimizer")
    optimizer.load_state_dict(checkpoint["optimizer"])
    losses = train(module, optimizer)
    check(close(losses, checkpoint["next_losses"]),
          f"losses after loading: {losses}, not {checkpoint['next_losses']}")
    return module, optimizer


def to_cpp(program, name, module, optimizer, folder):
    """Saves in each way that Python users do, for C++ to go on."""
    path = f"{folder}/python_{name}.pth"
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
    legacy = f"{folder}/python_{name}_legacy.pth"
    torch.save(checkpoint, legacy, _use_new_zipfile_serialization=False)
    wrapped = f"{folder}/python_{name}_wrapped.pth"
    state = {"module._orig_mod." + key: value
             for key, value in checkpoint["state_dict"].items()}
    torch.save({**checkpoint, "state_dict": state}, wrapped)
    newer = f"{folder}/python_{name}_protocol.pth"
    torch.save(checkpoint, newer, pickle_protocol=4)
    for file in (path, legacy, wrapped, newer):
        subprocess.run([program, "read", name, file], check=True)


def main():
    program, folder = sys.argv[1:]
    for name in ("adam", "adamw", "sgd"):
        path = f"{folder}/cpp_{name}.pth"
        subprocess.run([program, "write", name, path], check=True)
        subprocess.run([program, "read", name, path], check=True)
        module, optimizer = from_cpp(name, path)
        to_cpp(program, name, module, optimizer, folder)
    print("torch", torch.__version__, "and C++ agree")


if __name__ == "__main__":
    main()
