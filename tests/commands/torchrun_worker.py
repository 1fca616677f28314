"""A training program of another origin: it knows torchrun's contract alone.

Adds its rank over all ranks, and fails once where it is told to.
"""

import os
import pathlib
import sys

import torch
import torch.distributed

torch.distributed.init_process_group("gloo")
rank = torch.distributed.get_rank()
value = torch.tensor([float(rank + 1)])
torch.distributed.all_reduce(value)
count = os.environ["TORCHELASTIC_RESTART_COUNT"]
if "--fail-once" in sys.argv and count == "0" and rank == 1:
    raise RuntimeError("once")
out = pathlib.Path(sys.argv[sys.argv.index("--out") + 1])
(out / f"rank-{rank}.txt").write_text(
    f"{value.item()} of {torch.distributed.get_world_size()}, restart {count}")
torch.distributed.destroy_process_group()
