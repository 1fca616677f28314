#!/usr/bin/env python3
"""What the connection between ranks costs, and what the runner does.

  bazel run -c opt //tests/commands:scaling -- [SIDE] [STEPS] [ROUNDS]

Trains VoxelMorph on synthetic pairs of SIDE^3 voxels (64), one thread per
process, by turns

  one           one process
  unconnected   two processes at once that know nothing of each other
  connected     two ranks of one run
  under runner  one process that the runner started, and watches

and prints the mean step of each, the throughput of connected ranks relative to
unconnected processes, and the runner's share of a step: the medians over the
rounds. The first two steps of each process are left out. The machine must be
quiet: the unconnected ones show how much two processes cost each other by memory
alone, and connected ones wait for whichever something else held up.
"""

import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

RUNNER, WORKER = (os.path.abspath(path) for path in sys.argv[1:3])
NUMBERS = [int(word) for word in sys.argv[3:]]
SIDE, STEPS, ROUNDS = NUMBERS + [64, 12, 3][len(NUMBERS):]
WARM_UP = 2


def options(out):
    return ["--device", "cpu", "--threads", "1", "--out", str(out), "--size",
            f"{SIDE},{SIDE},{SIDE}", "--pairs-per-epoch", "64", "--val-pairs",
            "0", "--val-every", "0", "--loader-threads", "1", "--steps",
            str(STEPS + WARM_UP)]


def seconds(out):
    lines = [json.loads(line) for line in open(out / "metrics.jsonl")]
    return [line["seconds"] for line in lines if "loss" in line][WARM_UP:]


def run(commands):
    environment = dict(os.environ, OMP_NUM_THREADS="1")
    environment.pop("BUILD_WORKING_DIRECTORY", None)
    processes = [subprocess.Popen(command, env=environment,
                                  stdout=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL)
                 for command in commands]
    codes = [process.wait() for process in processes]
    if any(codes):
        sys.exit(f"error: {commands} ended with {codes}")


def main():
    rounds = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(ROUNDS):
            work = pathlib.Path(folder) / str(number)
            runner = [RUNNER, "--worker", WORKER, "--console", "none"]
            run([[WORKER, *options(work / "one")]])
            run([[WORKER, *options(work / name)] for name in ("a", "b")])
            run([[*runner, "--cpu-procs", "2", *options(work / "connected")]])
            run([[*runner, "--cpu-procs", "1", *options(work / "alone")]])
            rounds.append({
                "one": statistics.mean(seconds(work / "one")),
                "unconnected": statistics.mean(
                    seconds(work / "a") + seconds(work / "b")),
                "connected": statistics.mean(seconds(work / "connected")),
                "under runner": statistics.mean(seconds(work / "alone")),
            })

    def median(value):
        return statistics.median(map(value, rounds))

    print(f"VoxelMorph, {SIDE}^3, {STEPS} steps in {ROUNDS} rounds")
    for name in rounds[0]:
        print(f"  {name:13} {median(lambda r: r[name]):8.4f} s per step")
    ratio = median(lambda r: r["unconnected"] / r["connected"])
    share = median(lambda r: r["under runner"] / r["one"] - 1)
    print(f"connected / unconnected throughput {ratio:.3f}")
    print(f"runner's share of a step           {share:+.3f}")


main()
