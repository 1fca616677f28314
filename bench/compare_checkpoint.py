#!/usr/bin/env python3
"""Times mir/checkpoint beside torch.load and torch.save, in one run.

usage: compare_checkpoint.py PROGRAM [FOLDER] [REPETITIONS]

PROGRAM is //bench:checkpoint; files of 1 GiB go to FOLDER (default /tmp), which
decides what saving costs. Python needs torch. Both save with their data on the
disk (fsync), and load from the system's cache. The two alternate, each in a
process of its own after one run to warm up; the medians are compared.

Ours always keeps the last file until the new one is whole. Python saves over
the same file (SaveOver), and as safely as ours (SaveNew).
"""

import json
import os
import statistics
import subprocess
import sys
import time

import torch

MIB = 1024


def ours(program, name, folder):
    command = [program, f"--benchmark_filter=BM_{name}/MiB:{MIB}/",
               "--benchmark_min_time=0", "--benchmark_format=json"]
    out = subprocess.run(command, check=True, stdout=subprocess.PIPE,
                         env={**os.environ, "MIR_BENCH_FOLDER": folder}).stdout
    (run,) = json.loads(out)["benchmarks"]
    if run.get("error_occurred"):
        sys.exit(run["error_message"])
    return run["real_time"] / 1000


def seconds(call):
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def save(state, path):
    torch.save(state, path)
    with open(path, "rb+") as file:
        os.fsync(file.fileno())


def save_new(state, path):
    save(state, path + ".tmp")
    os.replace(path + ".tmp", path)


def first_tensor(path):
    state = torch.load(path, weights_only=True, mmap=True)
    state["layer63.weight"].sum().item()


def random_state():
    return {f"layer{i}.weight": torch.randn(MIB * 2**18 // 64)
            for i in range(64)}


def peer(name, path):
    """Prints the seconds of one run after another."""
    if name.startswith("Save"):
        state = random_state()
    call = {
        "Load": lambda: torch.load(path, weights_only=True, mmap=False),
        "SaveOver": lambda: save(state, path),
        "SaveNew": lambda: save_new(state, path),
        "FirstTensor": lambda: first_tensor(path),
    }[name]
    call()
    print(seconds(call))


def theirs(name, path):
    command = [sys.executable, __file__, "--peer", name, path]
    return float(subprocess.run(command, check=True,
                                stdout=subprocess.PIPE).stdout)


def main():
    program = sys.argv[1]
    folder = sys.argv[2] if len(sys.argv) > 2 else "/tmp"
    repetitions = int(sys.argv[3]) if len(sys.argv) > 3 else 5
    path = os.path.join(folder, "mir_bench_python.pth")
    save(random_state(), path)
    print(f"torch {torch.__version__}, {MIB} MiB, medians of {repetitions}")
    for name, benchmark in [("Load", "Load"), ("SaveOver", "Save"),
                            ("SaveNew", "Save"),
                            ("FirstTensor", "FirstTensor")]:
        times = [(ours(program, benchmark, folder), theirs(name, path))
                 for _ in range(repetitions)]
        a, b = (statistics.median(column) for column in zip(*times))
        print(f"{name:12} ours {1000 * a:9.1f} ms  Python {1000 * b:9.1f} ms  "
              f"Python / ours {b / a:6.2f}", flush=True)
    os.remove(path)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--peer"]:
        peer(*sys.argv[2:])
    else:
        main()
