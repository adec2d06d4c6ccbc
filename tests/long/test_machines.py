"""Promise: scripts run on two emulated machines as on one, and on any number of GPUs."""

import json
import socket
import subprocess
import sys

from conftest import ROOT, run
from helpers.emulated import NEEDS

from shared.lab.records import reading

pytestmark = NEEDS
SCRIPT, STEPS = "08_fsdp/hsdp.py", ("--preset", "tiny", "--max-steps", "3")


def emulated(devices, *words):
    return [sys.executable, "-m", "emulated_gpu", "--devices", str(devices), *map(str, words)]


def test_two_machines_are_four_gpus(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    join = ["-m", "torch.distributed.run", "--nnodes", 2, "--nproc-per-node", 2]
    join += ["--master-addr", "127.0.0.1", "--master-port", port]
    machines = []
    for rank in (0, 1):
        words = (*join, "--node-rank", rank, SCRIPT, *STEPS, "--record", tmp_path / "two.jsonl")
        with (tmp_path / f"{rank}.txt").open("w") as log:
            machines.append(subprocess.Popen(emulated(2, *words), cwd=ROOT, stdout=log, stderr=log))
    codes = [machine.wait(timeout=300) for machine in machines]
    # The second machine may find the first one gone at the very end; the training has ended then.
    assert codes[0] == 0, (tmp_path / "0.txt").read_text()[-3000:]
    one = emulated(4, SCRIPT, *STEPS, "--record", tmp_path / "one.jsonl")
    subprocess.run(one, cwd=ROOT, check=True, capture_output=True, timeout=300)
    two, one = (reading.read(tmp_path / f"{name}.jsonl")[0][0] for name in ("two", "one"))
    assert two["world_size"] == one["world_size"] == 4
    assert json.dumps(two["train"]) == json.dumps(one["train"])


def test_a_stage_on_one_device_for_each_image_and_more():
    """With more devices than the batch has images, each device has an image."""
    options = "--preset full --model vit_b_16 --dry-run --max-steps 2".split()
    command = ["-m", "emulated_gpu", "--devices", 64, "--alone", "08_fsdp/train.py", *options]
    printed = run(*command, limit=200)
    assert "A100-SXM4-80GB (emulated) x 64" in printed and "rank 0 alone" in printed
