"""Promise: when PyTorch changes a private name that this repository uses, a test tells which.

Public interfaces change with a warning, private ones without. Each name here has its reason beside
its use, in shared/memory/torch_private.py and shared/predict/gpu.py and processes.py, and in
shared/lessons/guide.py, which computes as PyTorch did before.
"""

import ast
import importlib

import pytest
import torch
from conftest import ROOT

WHERE = ("memory/torch_private", "memory/ledger", "predict/gpu", "predict/processes")
# These imitate older versions.
WHERE += ("lessons/guide", "published/article", "published/step_by_step")
# Dispatch modes stand in PyTorch's documentation, with the underscore; the compiler's are here.
DOCUMENTED = ("torch.utils._python_dispatch", "torch.utils._pytree")
NAMES = {
    "torch._C": ["_current_graph_task_id", "_current_autograd_node"],
    "torch.autograd": ["_get_sequence_nr"],
    "torch.ops.mkldnn": ["_is_mkldnn_bf16_supported"],
    "torch.distributed.tensor._sharding_prop": ["ShardingPropagator"],
    "torch.distributed.tensor._sharding_prop.ShardingPropagator": [
        "_propagate_tensor_meta_non_cached"
    ],
    "torch.distributed.fsdp._fully_shard._fsdp_param_group.FSDPParamGroup": ["wait_for_unshard"],
    "torch.distributed.fsdp._fully_shard._fsdp_init": ["_move_states_to_device"],
    "torch.utils._pytree": ["tree_leaves", "tree_map_only"],
    "torch.utils._python_dispatch": ["TorchDispatchMode"],
    "torch.nn.Module": ["_apply"],
    "torch._subclasses.fake_tensor": ["FakeTensor", "FakeTensorMode", "unset_fake_temporarily"],
    "torch.distributed._state_dict_utils": [
        "compute_local_shape_and_global_offset",
        "_broadcast_tensors",
    ],
    "torch.optim.optimizer": ["_foreach_supported_types"],
    "torch.utils.backend_registration": ["_setup_privateuseone_for_python_backend"],
    "torch.testing._internal.distributed.fake_pg": ["FakeStore", "_create_fake_pg"],
    "torch.ops._c10d_functional": ["wait_tensor", "all_reduce"],
    "torch.UntypedStorage": ["resize_", "_cdata"],
    "torch.cuda.memory": ["_record_memory_history", "_dump_snapshot"],
    "torch.library": ["get_kernel"],
    "torch.ops.aten": [
        "_scaled_dot_product_flash_attention_for_cpu",
        "_scaled_dot_product_flash_attention_for_cpu_backward",
        "_scaled_dot_product_flash_attention",
        "_scaled_dot_product_efficient_attention",
        "_scaled_dot_product_attention_math",
        "_softmax",
        "_softmax_backward_data",
    ],
}


def found(path):
    """Returns what a dotted path leads to, through modules and attributes."""
    words = path.split(".")
    for n in range(len(words), 0, -1):
        try:
            there = importlib.import_module(".".join(words[:n]))
        except ImportError:
            continue
        for word in words[n:]:
            there = getattr(there, word)
        return there
    raise ImportError(path)


@pytest.mark.parametrize("owner", NAMES)
def test_is_still_there(owner):
    for name in NAMES[owner]:
        assert hasattr(found(owner), name), f"torch {torch.__version__} has no {owner}.{name}"


def private(path):
    """Returns the private names of PyTorch that a module imports or reaches for."""
    used = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("torch"):
            parts = {word for word in node.module.split(".") if word.startswith("_")}
            names = {alias.name for alias in node.names if alias.name.startswith("_")}
            if node.module not in DOCUMENTED and (parts or names):
                used.add(node.module)
        dotted = ast.unparse(node) if isinstance(node, ast.Attribute) else ""
        if dotted.startswith("torch.") and "._" in dotted.replace("__", ""):
            used.add(dotted)
    return used


def test_private_names_are_in_few_modules():
    allowed = {ROOT / "shared" / f"{name}.py" for name in WHERE}
    elsewhere = {path: private(path) for path in (ROOT / "shared").rglob("*.py")}
    assert {path for path, names in elsewhere.items() if names} <= allowed
