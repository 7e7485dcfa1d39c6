"""Programs that fail, each with the class its failure belongs to; `make.py` runs them.

A name ends with what runs it. Programs of ``torch`` need the environment with torch, those of
``mpi`` an ``mpirun``.
"""

# ruff: noqa: E501 - a program that is a line stays a line

from __future__ import annotations

from typing import NamedTuple


class Scenario(NamedTuple):
    """A shell script that fails, and why it does."""

    label: str
    script: str


def python(text: str, *flags: str) -> str:
    """Return a shell script that runs a Python program."""
    return f"cat > prog.py <<'END'\n{text.strip()}\nEND\n{' '.join(('$PY', *flags, 'prog.py'))}\n"


def torchrun(text: str, ranks: int = 2) -> str:
    """Return a shell script that runs a Python program on several ranks."""
    return (
        f"cat > train.py <<'END'\n{text.strip()}\nEND\n"
        f"$PY -m torch.distributed.run --standalone --nproc-per-node {ranks} train.py\n"
    )


_RANKS = """
import os, time
import torch, torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
print(f"rank {rank} of {dist.get_world_size()} is up", flush=True)
"""
_ON_RANK_1 = _RANKS + "if rank == 1:\n    time.sleep(0.3)\n    "
_STUCK = "\ndist.barrier()\ntime.sleep(60)\n"
_LIMITED = "import resource\nresource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))\n"

PYTHON = {
    "import-module": Scenario("import_error", python("import flash_attn_that_is_not_here")),
    "import-name": Scenario("import_error", python("from json import no_such_name")),
    "import-in-function": Scenario(
        "import_error",
        python("def build():\n    import apex.not_here\n\nprint('building')\nbuild()"),
    ),
    "import-dash-m": Scenario("import_error", "$PY -m package_that_is_not_installed --epochs 3"),
    "import-library": Scenario(
        "import_error", python("import ctypes\nctypes.CDLL('libcudnn_not_here.so.9')")
    ),
    "import-chained": Scenario(
        "import_error",
        python(
            "try:\n    import transformer_engine_not_here\nexcept ImportError as err:\n"
            "    raise RuntimeError('the model needs Transformer Engine') from err"
        ),
    ),
    "nan-loss": Scenario(
        "not_a_number",
        python(
            "import math\nfor step in range(5):\n    loss = float('nan') if step == 3 else 1.0\n"
            "    print(f'step {step} loss {loss}', flush=True)\n"
            "    if math.isnan(loss):\n        raise ValueError(f'loss is {loss} at step {step}')"
        ),
    ),
    "nan-arithmetic": Scenario(
        "not_a_number",
        python("raise FloatingPointError('Loss is NaN or infinite; last good step 118')"),
    ),
    "nan-convert": Scenario("not_a_number", python("steps = int(float('nan') * 3)")),
    "nan-class": Scenario(
        "not_a_number",
        python(
            "class NonFiniteLossError(Exception):\n    pass\n\n"
            "raise NonFiniteLossError('grad norm was non-finite for 3 steps')"
        ),
    ),
    "nan-mentioned": Scenario(
        "missing_file",
        python("print('loss: nan, going on')\nopen('/data/none/train.bin')"),
    ),
    "file-data": Scenario("missing_file", python("open('/data/none/train.jsonl')")),
    "file-script": Scenario("missing_file", "$PY does_not_exist.py --epochs 3"),
    "file-config": Scenario("missing_file", "set -e\ncat /etc/none/config.yaml\necho never"),
    "file-cd": Scenario("missing_file", "set -e\ncd /scratch/none\n$PY train.py"),
    "command-unknown": Scenario("command_not_found", "set -e\nnvidia-smi-not-here --query\n"),
    "command-in-python": Scenario(
        "missing_file", python("import subprocess\nsubprocess.run(['no-such-tool', '-x'])")
    ),
    "permission-file": Scenario(
        "permission_denied",
        "touch tool.sh; chmod 0644 tool.sh; exec ./tool.sh",
    ),
    "permission-directory": Scenario(
        "permission_denied",
        python("raise PermissionError(13, 'Permission denied', '/checkpoints')"),
    ),
    "syntax": Scenario("syntax_error", python("def train(:\n    pass")),
    "syntax-indent": Scenario("syntax_error", python("def train():\nprint(1)")),
    "syntax-shell": Scenario("syntax_error", "echo start\nif [ 1 = 1 ]; then echo x; fi)"),
    "arguments-argparse": Scenario(
        "bad_arguments",
        python(
            "import argparse\np = argparse.ArgumentParser()\n"
            "p.add_argument('--steps', type=int, required=True)\np.parse_args(['--step-s', 'x'])"
        ),
    ),
    "arguments-missing": Scenario(
        "bad_arguments",
        python(
            "import argparse\np = argparse.ArgumentParser(prog='pretrain')\n"
            "p.add_argument('config')\np.parse_args([])"
        ),
    ),
    "arguments-python": Scenario("bad_arguments", "$PY --no-such-flag train.py"),
    "memory-python": Scenario("out_of_memory", python(_LIMITED + "x = bytearray(1 << 33)")),
    "memory-list": Scenario(
        "out_of_memory",
        python(_LIMITED + "rows = []\nwhile True:\n    rows.append(bytearray(1 << 26))"),
    ),
    "memory-fork": Scenario(
        "out_of_memory",
        python("raise OSError(12, 'Cannot allocate memory')"),
    ),
    "disk-write": Scenario(
        "disk_full", python("with open('/dev/full', 'w') as f:\n    f.write('x' * 100000)")
    ),
    "disk-cp": Scenario("disk_full", "set -e\nhead -c 100000 /dev/zero > /dev/full"),
    "crash-segv": Scenario("crash", python("import ctypes\nctypes.string_at(0)")),
    "crash-faulthandler": Scenario(
        "crash", python("import ctypes\nctypes.string_at(0)", "-X", "faulthandler")
    ),
    "crash-abort": Scenario("crash", python("import os\nprint('before', flush=True)\nos.abort()")),
    "crash-in-shell": Scenario("crash", python("import ctypes\nctypes.string_at(0)") + "exit $?"),
    "crash-recursion": Scenario("python_error", python("def f(n):\n    return f(n + 1)\n\nf(0)")),
    "killed": Scenario("killed", python("import os\nos.kill(os.getpid(), 9)")),
    "killed-child": Scenario(
        "killed", "sh -c 'kill -9 $$'\ncode=$?\necho trainer ended; exit $code"
    ),
    "terminated": Scenario("terminated", python("import os\nos.kill(os.getpid(), 15)")),
    "interrupted": Scenario(
        "terminated", python("import os, time\nos.kill(os.getpid(), 2)\ntime.sleep(9)")
    ),
    "network-refused": Scenario(
        "network",
        python("import socket\nsocket.create_connection(('127.0.0.1', 9), timeout=2)"),
    ),
    "network-name": Scenario(
        "network",
        python("import urllib.request\nurllib.request.urlopen('http://tracker.invalid/api')"),
    ),
    "network-timeout": Scenario(
        "network",
        python(
            "import socket\ns = socket.socket()\ns.bind(('127.0.0.1', 0))\ns.listen(0)\n"
            "c = socket.create_connection(s.getsockname())\nc.settimeout(0.1)\nc.recv(1)"
        ),
    ),
    "network-port": Scenario(
        "network",
        python(
            "import socket\na, b = socket.socket(), socket.socket()\na.bind(('127.0.0.1', 0))\n"
            "a.listen()\nb.bind(a.getsockname())"
        ),
    ),
    "network-reset": Scenario(
        "network", python("raise ConnectionResetError(104, 'Connection reset by peer')")
    ),
    "error-key": Scenario(
        "python_error", python("config = {'lr': 1}\nprint(config['learning_rate'])")
    ),
    "error-type": Scenario("python_error", python("def fit(steps):\n    pass\n\nfit(5, lr=0.1)")),
    "error-assert": Scenario(
        "python_error", python("batch = 3\nassert batch % 8 == 0, 'batch must divide by 8'")
    ),
    "error-multiline": Scenario(
        "python_error",
        python(
            "raise ValueError('The config is wrong:\\n  lr: must be positive\\n  steps: missing')"
        ),
    ),
    "error-own-class": Scenario(
        "python_error",
        python("class Diverged(Exception):\n    pass\n\nraise Diverged('after 400 steps')"),
    ),
    "error-noise-after": Scenario(
        "python_error",
        python(
            "import atexit\natexit.register(lambda: print('wandb: syncing 3 files\\nwandb: done'))\n"
            "raise KeyError('optimizer')"
        ),
    ),
    "error-notes": Scenario(
        "python_error",
        python(
            "try:\n    int('4k')\nexcept ValueError as err:\n    raise RuntimeError('bad context length') from err"
        ),
    ),
    "error-pool": Scenario(
        "python_error",
        python(
            "from multiprocessing import Pool\n\ndef f(x):\n    return 1 / (x - 2)\n\n"
            "if __name__ == '__main__':\n    print(Pool(1).map(f, [1, 2, 3]))"
        ),
    ),
    "error-thread-noise": Scenario(
        "missing_file",
        python(
            "import threading\n\ndef beat():\n    raise RuntimeError('heartbeat is off')\n\n"
            "t = threading.Thread(target=beat)\nt.start()\nt.join()\nopen('/data/none/index')"
        ),
    ),
    "error-group": Scenario(
        "python_error",
        python(
            "raise ExceptionGroup('two readers failed', [ValueError('shard 1'), TypeError('shard 2')])"
        ),
    ),
    "exit-silent": Scenario("exit_code", "exit 3"),
    "exit-words": Scenario(
        "exit_code", "echo 'step 10 loss 0.3'\necho 'validation below target'\nexit 4"
    ),
    "exit-sysexit": Scenario(
        "exit_code", python("import sys\nsys.exit('refusing to overwrite checkpoint')")
    ),
    "exit-mentions-memory": Scenario(
        "exit_code",
        "echo 'memory: 81 GB of 96 GB used, 0 oom events'\necho 'score too low'\nexit 5",
    ),
    "exit-mentions-timeout": Scenario(
        "exit_code", "echo 'connection timeout is set to 30 s'\necho 'eval rejected'\nexit 6"
    ),
}

TORCH = {
    "no-gpu-driver": Scenario("no_gpu", python("import torch\ntorch.zeros(1).cuda()")),
    "no-gpu-init": Scenario("no_gpu", python("import torch\ntorch.cuda.init()")),
    "no-gpu-device": Scenario("no_gpu", python("import torch\ntorch.ones(2, device='cuda:3')")),
    "no-gpu-load": Scenario(
        "no_gpu",
        python(
            "import io, torch\nfile = io.BytesIO()\nclass Here:\n    pass\n"
            "storage = torch.UntypedStorage(4)\n"
            "from torch.serialization import _validate_device\n_validate_device('cuda:0', 'cuda')"
        ),
    ),
    "no-gpu-nccl": Scenario(
        "no_gpu",
        torchrun("import torch.distributed as dist\ndist.init_process_group('nccl')\n", 1),
    ),
    "gpu-memory": Scenario(
        "gpu_out_of_memory",
        python(
            "import torch\nraise torch.OutOfMemoryError('CUDA out of memory. Tried to allocate 20.00 MiB. "
            "GPU 0 has a total capacity of 79.11 GiB of which 17.56 MiB is free.')"
        ),
    ),
    "gpu-memory-rank": Scenario(
        "gpu_out_of_memory",
        torchrun(
            _ON_RANK_1
            + "raise torch.OutOfMemoryError('CUDA out of memory. Tried to allocate 2.50 GiB.')"
            + _STUCK
        ),
    ),
    "memory-tensor": Scenario("out_of_memory", python("import torch\ntorch.empty(1 << 50)")),
    "shapes": Scenario(
        "python_error", python("import torch\ntorch.nn.Linear(4, 2)(torch.zeros(3, 5))")
    ),
    "index": Scenario(
        "python_error", python("import torch\ntorch.nn.Embedding(4, 2)(torch.tensor([9]))")
    ),
    "load": Scenario(
        "missing_file", python("import torch\ntorch.load('/checkpoints/none/last.pt')")
    ),
    "state-dict": Scenario(
        "python_error",
        python("import torch\ntorch.nn.Linear(4, 2).load_state_dict({'weight': torch.zeros(1)})"),
    ),
    "dataloader": Scenario(
        "python_error",
        python(
            "import torch\n\nclass Data(torch.utils.data.Dataset):\n    def __len__(self):\n        return 8\n\n"
            "    def __getitem__(self, i):\n        raise ValueError(f'sample {i} is damaged')\n\n"
            "if __name__ == '__main__':\n    list(torch.utils.data.DataLoader(Data(), num_workers=1))"
        ),
    ),
    "dataloader-killed": Scenario(
        "killed",
        python(
            "import os, torch\n\nclass Data(torch.utils.data.Dataset):\n    def __len__(self):\n        return 8\n\n"
            "    def __getitem__(self, i):\n        os.kill(os.getpid(), 9)\n\n"
            "if __name__ == '__main__':\n    list(torch.utils.data.DataLoader(Data(), num_workers=1))"
        ),
    ),
    "rank-error": Scenario(
        "python_error", torchrun(_ON_RANK_1 + "raise ValueError('shard 7 is empty')" + _STUCK)
    ),
    "rank-import": Scenario("import_error", torchrun("import not_installed_here\n")),
    "rank-nan": Scenario(
        "not_a_number", torchrun(_ON_RANK_1 + "raise ValueError('loss is nan at step 12')" + _STUCK)
    ),
    "rank-segv": Scenario(
        "crash", torchrun(_ON_RANK_1 + "import ctypes; ctypes.string_at(0)" + _STUCK)
    ),
    "rank-killed": Scenario("killed", torchrun(_ON_RANK_1 + "os.kill(os.getpid(), 9)" + _STUCK)),
    "rank-file": Scenario(
        "missing_file", torchrun(_ON_RANK_1 + "open('/data/none/shard-1.tar')" + _STUCK)
    ),
    "rank-gone-peer": Scenario(
        "python_error",
        torchrun(
            _RANKS + "if rank == 1:\n    raise RuntimeError('bad batch')\n"
            "x = torch.ones(1)\nfor _ in range(100):\n    dist.all_reduce(x)\n    time.sleep(0.05)\n"
        ),
    ),
    "rank-gloo-timeout": Scenario(
        "network",
        torchrun(
            _RANKS.replace(
                '("gloo")', '("gloo", timeout=__import__("datetime").timedelta(seconds=2))'
            )
            + "if rank == 0:\n    time.sleep(8)\nelse:\n    dist.barrier()\n"
        ),
    ),
    "rendezvous-port": Scenario(
        "network",
        "cat > t.py <<'END'\nprint('never')\nEND\n"
        "$PY -m torch.distributed.run --nnodes 2 --node-rank 1 --nproc-per-node 1 "
        "--rdzv-backend c10d --rdzv-endpoint 127.0.0.1:9 --rdzv-conf join_timeout=3,timeout=3 t.py\n",
    ),
    "store-port": Scenario(
        "network",
        python(
            "import socket, datetime, torch.distributed as dist\ns = socket.socket()\n"
            "s.bind(('0.0.0.0', 0))\ns.listen()\n"
            "dist.TCPStore('localhost', s.getsockname()[1], 1, True)"
        ),
    ),
    "spawn": Scenario(
        "python_error",
        python(
            "import torch.multiprocessing as mp\n\ndef work(rank):\n    if rank == 1:\n"
            "        raise KeyError('mask')\n\nif __name__ == '__main__':\n    mp.spawn(work, nprocs=2)"
        ),
    ),
    "compiled-kernel": Scenario(
        "python_error", python("import torch\ntorch.ops.flash_kernels.forward(torch.zeros(1))")
    ),
}

_MPI = "from mpi4py import MPI\nrank = MPI.COMM_WORLD.Get_rank()\n"


def _mpirun(text: str) -> str:
    return (
        f"cat > mpi.py <<'END'\n{text.strip()}\nEND\n"
        "$MPIRUN --allow-run-as-root --oversubscribe -n 2 $MPIPY mpi.py\n"
    )


MPI = {
    "abort": Scenario(
        "exit_code",
        _mpirun(_MPI + "if rank == 1:\n    MPI.COMM_WORLD.Abort(7)\nMPI.COMM_WORLD.barrier()"),
    ),
    "rank-error": Scenario(
        "python_error", _mpirun(_MPI + "if rank == 1:\n    raise ValueError('halo is empty')")
    ),
    "rank-segv": Scenario(
        "crash",
        _mpirun(
            _MPI + "import ctypes\nif rank == 1:\n    ctypes.string_at(0)\nMPI.COMM_WORLD.barrier()"
        ),
    ),
    "rank-killed": Scenario(
        "killed",
        _mpirun(
            _MPI + "import os\nif rank == 1:\n    os.kill(os.getpid(), 9)\nMPI.COMM_WORLD.barrier()"
        ),
    ),
    "import": Scenario("import_error", _mpirun("import mpi_solver_not_here")),
    "command": Scenario("command_not_found", "$MPIRUN --allow-run-as-root -n 2 solver-not-here"),
}
