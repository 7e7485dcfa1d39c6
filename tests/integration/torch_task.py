"""A program in which all processes of a job meet, and the torch that runs it."""

from __future__ import annotations

from tests.contract.backends import ROOT

TORCH = ROOT / ".venv-torch" / "bin"

SUM = """\
import sys
import torch, torch.distributed as dist
dist.init_process_group("gloo")
mine = torch.tensor([dist.get_rank() + 1.0])
dist.all_reduce(mine)
# As one write: several processes share the log.
sys.stdout.write(f"rank {dist.get_rank()} of {dist.get_world_size()} sum {mine.item():.0f}\\n")
sys.stdout.flush()
dist.barrier()
dist.destroy_process_group()
"""


def check_torch() -> None:
    assert (TORCH / "torchrun").exists(), "no torch: run `make .venv-torch/.installed`"
