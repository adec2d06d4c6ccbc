"""Run scripts of 08 to 11 on four processes, as torchrun would start them.

Usage: python tests/helpers/sharded.py OUT.json [ROAD...]
These are the stages, or side roads and their parents. Every script runs as it stands; some also in
fp32, where results can be compared with one device.
"""

import hashlib
import json
import sys

import torch
import torch.distributed as dist
from conftest import SHARDED, TEXT, in_fp32
from torch.distributed.tensor import DTensor

from shared.lab.records import scripts
from shared.lab.records.running import side_by_side
from shared.metrics import Losses

STEPS = 3
RECORDED = "load train precision shares batch_size micro_batch_size test_accuracy input_shapes"
RECORDED = RECORDED.split()
TENSOR_PARALLEL = "08_fsdp/tensor_parallel"


def watch(name, fp32):
    """Run a script for a few updates; return the observations of this process."""
    module = in_fp32(name) if fp32 else scripts.get(name).load()
    seen = {"losses": [], "whole": []}
    module_build, end = module.build, Losses.end

    def look_at_gradients(optimizer, *_):
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        seen["grads"] = sorted({p.grad.device.type for p in parameters if p.grad is not None})
        whole = [p.grad for p in parameters if not isinstance(p, DTensor) and p.grad is not None]
        seen["whole"].append(hashlib.sha256(b"".join(map(raw, whole))).hexdigest())

    def build(*args):
        seen["file"] = module.models.weights(*args[1:])
        seen["bytes"] = [hashed(seen["file"])]
        built = module_build(*args)
        model, optimizer = built[:2]
        seen["model"] = model
        seen["shapes"] = [
            (list(p.shape), p.to_local().numel() if isinstance(p, DTensor) else None)
            for p in model.parameters()
        ]
        optimizer.register_step_pre_hook(look_at_gradients)
        return built

    def watched_end(losses):
        mean = losses.last.clone()
        dist.all_reduce(mean)
        seen["losses"].append(mean.item() / dist.get_world_size())
        end(losses)

    module.build, Losses.end = build, watched_end
    try:
        record = module.main(["--preset", "tiny", "--max-steps", str(STEPS)])
    finally:
        Losses.end = end
    seen["bytes"].append(hashed(seen.pop("file")))
    parameters = list(seen.pop("model").parameters())
    return {
        **seen,
        **{key: record.get(key) for key in RECORDED},
        "parameters_on": sorted({p.device.type for p in parameters}),
        "dtypes": sorted({str(p.dtype) for p in parameters}),
    }


def raw(tensor):
    return tensor.contiguous().view(torch.uint8).numpy().tobytes()


def hashed(file):
    return hashlib.sha256(file.read_bytes()).hexdigest()


def work(out, *roads):
    """Run all scripts as one of the processes; the first one writes the results."""
    dist.init_process_group("gloo")
    # The scripts in plain PyTorch must not initialize it again.
    dist.init_process_group = dist.destroy_process_group = lambda *_: None
    if roads:
        parents = {scripts.get(road).parent for road in roads} - {*roads}
        parents = [name for name in sorted(parents) if scripts.get(name).load().DEVICES > 1]
        asked = [(name, False) for name in [*parents, *roads]]
        asked += [(TENSOR_PARALLEL, True)]
    else:
        # In fp32 the first is enough: the others agree with it in bf16 to the last bit.
        plain = scripts.plain(SHARDED)
        asked = [(name, False) for name in [*SHARDED, *plain, TEXT[1]]]
        asked += [(SHARDED[0], True), (plain[0], True)]
    results = {
        f"{name} {'in fp32' if fp32 else 'as is'}": watch(name, fp32) for name, fp32 in asked
    }
    everyone = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, results)
    if dist.get_rank() == 0:
        with open(out, "w") as file:
            json.dump(everyone, file)


if __name__ == "__main__":
    side_by_side(4, work, *sys.argv[1:])
