#!/usr/bin/env python3
"""Training on two ranks whose processes are killed again and again.

Each start of a job is killed (SIGKILL, a rank at random, at a random moment)
once it has saved a checkpoint newer than the one it began from. The runner
starts it again; in the end it must have taken exactly the steps of an unbroken
run, and nothing may be left of it: no process, no port, no temporary file.

  restarts_test.py RUNNER WORKER [RESTARTS]
"""

import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import time
import uuid

RUNNER, WORKER = sys.argv[1:3]
RESTARTS = int(sys.argv[3]) if len(sys.argv) > 3 else 20
WORK = pathlib.Path(os.environ["TEST_TMPDIR"])
# Enough, however many a start takes until it is killed.
STEPS = 40 * RESTARTS + 50
MARK = f"MIR_RESTARTS_TEST={uuid.uuid4()}"


def command(out, *more):
    return [RUNNER, "--worker", WORKER, "--cpu-procs", "2", "--threads", "1",
            "--console", "none", "--env", MARK, "--out", str(out),
            "--config", "tiny", "--size", "16,16,16", "--pairs-per-epoch", "8",
            "--val-pairs", "0", "--val-every", "1", "--lr", "1e-3",
            "--steps", str(STEPS), *more]


def lines(path):
    """The whole lines of a JSONL file, as far as it is there."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().split("\n")[:-1]]


def curve(out):
    return [(line["step"], line["loss"], line["updated"])
            for line in lines(out / "metrics.jsonl") if "loss" in line]


def fail(words):
    print("FAILED", words)
    sys.exit(1)


def marked_processes():
    found = []
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if MARK.encode() in (process / "environ").read_bytes():
                found.append(int(process.name))
        except OSError:
            pass
    return found


def listening_ports():
    ports = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        if not os.path.exists(table):
            continue
        for line in open(table).readlines()[1:]:
            words = line.split()
            if words[3] == "0A":
                ports.add(int(words[1].rsplit(":", 1)[1], 16))
    return ports


def kill_again_and_again(out, runner, chance):
    """Kills until all restarts are used up; returns how often it killed."""
    kills = 0
    attempt = -1
    deadline = time.monotonic() + 600 + 30 * RESTARTS
    while kills < RESTARTS:
        if time.monotonic() > deadline:
            fail(f"only {kills} kills in time")
        if runner.poll() is not None:
            fail(f"the run ended with {runner.returncode} after {kills} kills")
        events = lines(out / "events.jsonl")
        starts = [i for i, e in enumerate(events) if e["event"] == "attempt"]
        if not starts or len(starts) - 1 == attempt:
            time.sleep(0.02)
            continue
        saved_before = max((e["step"] for e in events[:starts[-1]]
                            if e["event"] == "checkpoint"), default=-1)
        now = events[starts[-1]:]
        saved_now = max((e["step"] for e in now
                         if e["event"] == "checkpoint"), default=-1)
        if saved_now <= max(saved_before, 0):
            time.sleep(0.01)
            continue
        pids = {e["rank"]: e["pid"] for e in now if e["event"] == "started"}
        rank = chance.randrange(2)
        time.sleep(chance.random() * 0.05)
        try:
            os.kill(pids[rank], signal.SIGKILL)
        except ProcessLookupError:
            fail(f"rank {rank} was gone before it was killed")
        attempt = len(starts) - 1
        kills += 1
    return kills


def main():
    whole = WORK / "unbroken"
    if subprocess.run(command(whole), stderr=subprocess.STDOUT).returncode:
        fail("the unbroken run")

    out = WORK / "broken"
    chance = random.Random(7)
    with open(WORK / "log", "w") as log:
        runner = subprocess.Popen(
            command(out, "--max-restarts", str(RESTARTS)), stdout=log,
            stderr=log)
        try:
            kills = kill_again_and_again(out, runner, chance)
            code = runner.wait(timeout=600 + STEPS)
        finally:
            runner.kill()
    if code != 0:
        print((WORK / "log").read_text()[-3000:])
        fail(f"the run that was killed {kills} times ended with {code}")

    if curve(out) != curve(whole):
        fail("its curve is not that of an unbroken run")
    events = lines(out / "events.jsonl")
    restarts = [i for i, e in enumerate(events) if e["event"] == "restart"]
    if len(restarts) != RESTARTS:
        fail(f"{len(restarts)} restarts for {kills} kills")
    for at in restarts:
        saved = max(e["step"] for e in events[:at]
                    if e["event"] == "checkpoint")
        if events[at]["from_step"] != saved:
            fail(f"{events[at]} although step {saved} was saved")
    for attempt, at in enumerate(restarts, start=1):
        # What the worker says it found, which may be newer than it could tell.
        said = (out / f"attempt-{attempt}" / "rank-00000" /
                "stdout.log").read_text()
        found = int(said.split("Resumed at step ")[1].split()[0])
        if found < events[at]["from_step"]:
            fail(f"attempt {attempt} lost steps: it began at {found}, not at "
                 f"{events[at]['from_step']}")

    if left := marked_processes():
        fail(f"processes are left: {left}")
    ports = {e["port"] for e in events if e["event"] == "attempt"}
    if left := ports & listening_ports():
        fail(f"ports are left: {left}")
    left = [path for path in out.rglob("*")
            if path.suffix in (".tmp", ".probe") or
            path.parent.name == "checkpoints" and path.suffix != ".pth"]
    if left:
        fail(f"files are left: {left}")
    print(f"passed: {kills} kills, {STEPS} steps")


main()
