"""Promise: plain scripts import no heavy package, and a renamed private name stops no script."""

import json

from conftest import PLAIN, run

# Packages that scripts in plain PyTorch do not need. Lightning alone would import four of them.
HEAVY = "lightning lightning_fabric pytorch_lightning torchmetrics transformers scipy matplotlib"
HEAVY += " pandas sklearn datasets"
IMPORT = """
import json, sys
from shared.lab.records import scripts

plain, heavy = json.loads(sys.argv[1])
modules = [scripts.get(name).load() for name in plain]
found = [[name for name in heavy if name in sys.modules]]
modules[0].main(["--preset", "tiny", "--max-steps", "2"])
found.append([name for name in heavy if name in sys.modules])
print("found", json.dumps(found))
"""
# No private name exists. Those that PyTorch itself uses are hidden only while shared/ is imported.
RENAMED = """
import json, pkgutil, sys
import torch
from torch.distributed.fsdp._fully_shard import _fsdp_param_group as fsdp
from torch.distributed.tensor import _sharding_prop as dtensor

kept = fsdp.FSDPParamGroup, dtensor.ShardingPropagator
del torch.library.get_kernel, fsdp.FSDPParamGroup, dtensor.ShardingPropagator

def gone(path):
    raise AttributeError(path)

pkgutil.resolve_name = gone
import shared.images.cli, shared.metrics, shared.run.saving
from shared.lab.records import scripts

fsdp.FSDPParamGroup, dtensor.ShardingPropagator = kept
for name, *options in json.loads(sys.argv[1]):
    print("runs", name)
    record = scripts.get(name).load().main(["--preset", "tiny", "--max-steps", "2", *options])
    assert record["steps"] == 2 and record["train"]["device_peak_gb"] > 0
    print("ran", name)
"""


def test_plain_pytorch_is_all_that_plain_scripts_import():
    printed = run("-c", IMPORT, json.dumps([PLAIN, HEAVY.split()]))
    assert json.loads(printed.split("found ")[1].splitlines()[0]) == [[], []]


def test_a_script_runs_without_private_names_and_says_so_once():
    single = ["06_sgd/train", "06_sgd/plain"]
    shards = "08_fsdp/train", "--devices", "1"
    printed = run("-c", RENAMED, json.dumps([*zip(single), shards]))
    assert all(f"ran {name}\n" in printed for name in (*single, shards[0]))
    alone, sharded = printed.split(f"runs {shards[0]}\n")
    for name in ("_current_graph_task_id", "Module._apply"):
        assert alone.count(f"{name} is gone from PyTorch") == 1 and name not in sharded
    for name in ("FSDPParamGroup.wait_for_unshard", "_propagate_tensor_meta_non_cached"):
        assert sharded.count(f"{name} is gone from PyTorch") == 1 and name not in alone
