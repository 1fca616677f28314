#!/usr/bin/env python3
"""Saves weights as MIR publishes them, and lets C++ load them strictly.

usage: published_weights.py PROGRAM GOLDENS FOLDER CASE...

A case is NAME:MODEL:CONFIGURATION[:KEY=VALUE...]: the manifest of
GOLDENS/NAME@published says the names, shapes and types of MIR's state_dict, and
PROGRAM builds MODEL in that configuration. Values are those of the fill rule
(tests/goldens/README.md) with its default gains, integers count up, and
sampling grids, which C++ ignores, are zeros.
"""

import csv
import math
import os
import subprocess
import sys

import numpy
import torch

SEED = 1
U64 = numpy.uint64


def fnv1a64(text):
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = ((value ^ byte) * 0x100000001B3) % 2**64
    return value


def uniform(name, count):
    """In [-1, 1)."""
    x = numpy.arange(count, dtype=U64) + U64(fnv1a64(name))
    x ^= U64(SEED * 0xD1B54A32D192ED03 % 2**64)
    x += U64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> U64(30))) * U64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> U64(27))) * U64(0x94D049BB133111EB)
    x ^= x >> U64(31)
    return (x >> U64(40)).astype(numpy.float64) * 2.0**-24 * 2 - 1


def fill(name, shape):
    u = uniform(name, math.prod(shape))
    if len(shape) >= 2:
        values = u * (2 * math.sqrt(1 / math.prod(shape[1:])))
    elif name.endswith("running_var"):
        values = 1 + 0.5 * abs(u)
    elif len(shape) == 1 and name.endswith(".weight"):
        values = 1 + u * 0.1
    else:
        values = u * 0.1
    return torch.from_numpy(values.astype(numpy.float32)).view(shape)


def entry(row):
    name = row["name"]
    shape = ([] if row["shape"] == "scalar"
             else [int(size) for size in row["shape"].split("x")])
    if row["dtype"] == "int64":
        return torch.arange(math.prod(shape)).view(shape)
    assert row["dtype"] == "float32", row
    if name.endswith(".grid"):
        return torch.zeros(1).expand(shape)
    return fill(name, shape)


def save(manifest, path):
    with open(manifest, newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    state = {row["name"]: entry(row) for row in rows}
    assert len(state) == len(rows) > 0
    torch.save({"epoch": 1, "state_dict": state, "best_dsc": 0.7}, path)


def main():
    program, goldens, folder, *cases = sys.argv[1:]
    path = f"{folder}/published.pth.tar"
    for case in cases:
        name, model, configuration, *changes = case.split(":")
        print(name, flush=True)
        save(f"{goldens}/{name}@published/manifest.tsv", path)
        subprocess.run([program, path, model, configuration, *changes],
                       check=True)
    os.remove(path)


if __name__ == "__main__":
    main()
