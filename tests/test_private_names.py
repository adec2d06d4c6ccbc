"""Promise: if a package removes a private name that this repository uses, a test names it.

Public interfaces change with a warning, private ones without. The reason for each name is beside
its use. Scripts run without those that shared/memory looks up; predictions need most of the others.
"""

import ast
import inspect
import re
from pkgutil import resolve_name

import pytest
import torch
from conftest import ROOT
from lightning.fabric import Fabric

# Each line has an owner and its names.
NAMES = """
torch _foreach_add _foreach_add_ _foreach_addcdiv_ _foreach_zero_
torch._C _current_graph_task_id _current_autograd_node
torch._C _dispatch_get_registrations_for_dispatch_key
torch._C _cuda_setMemoryMetadata _len_torch_dispatch_stack
torch._C _cuda_memoryStats _cuda_resetPeakMemoryStats _accelerator_resetPeakStats
torch._C _accelerator_resetAccumulatedStats
torch.ScriptObject _type
torch.distributed.ProcessGroup _get_backend
torch.autograd _get_sequence_nr
torch.Tensor _indices _nnz
torch.cuda _lazy_call
torch.cuda.memory _record_memory_history _dump_snapshot _snapshot _set_allocator_settings
torch _inductor
torch._dynamo.trace_rules add
torch._functorch.config activation_memory_budget
torch._dynamo.utils calculate_time_spent
torch.library get_kernel
torch.library.Library _destroy
torch.nn.Module _apply
torch.nn.modules.conv _ConvNd
torch.utils._pytree tree_leaves tree_map_only
torch.utils._python_dispatch TorchDispatchMode _disable_current_modes
torch.testing._internal.distributed fake_pg
torch.distributed.distributed_c10d _resolve_process_group
torch.distributed._symmetric_memory _SymmetricMemory
torch._C._distributed_c10d._SymmetricMemory empty_strided_p2p rendezvous
torch.distributed.pipelining.stage _PipelineStageBase
torch.distributed.fsdp._fully_shard._fsdp_param_group.FSDPParamGroup wait_for_unshard
torch.distributed.tensor._sharding_prop.ShardingPropagator _propagate_tensor_meta_non_cached
torch.ops._c10d_functional wait_tensor all_reduce
torch.ops.mkldnn _is_mkldnn_bf16_supported
torch.ops.aten _local_scalar_dense _unique _unique2 _grouped_mm _coalesce _to_sparse
torch.ops.aten _sparse_sparse_matmul _nested_tensor_from_mask _padded_dense_to_jagged_forward
torch.ops.aten _conv_depthwise2d _slow_conv2d_forward
torch.ops.aten _to_copy _scaled_dot_product_flash_attention_for_cpu
torchao.optim _AdamW
torchao.prototype._nf4tensor_api NF4WeightOnlyConfig
transformers.AutoModelForCausalLM _model_mapping
transformers.Trainer _save_checkpoint
transformers.PreTrainedModel _from_config initialize_weights named_non_persistent_buffers
"""
# Names that only instances have: a function that makes an instance, and the names.
OBJECTS = {
    "a node": (lambda: torch.ones(1, requires_grad=True).exp().grad_fn, ["_sequence_nr"]),
    "an operation": (lambda: torch.ops.aten.mm.default, ["_schema", "_overloadpacket"]),
    "a module": (lambda: torch.nn.Linear(1, 1), ["_buffers"]),
    "Fabric's module": (lambda: Fabric().setup(torch.nn.Linear(1, 1)), ["_forward_module"]),
}
# Attributes that packages set or read, and that not all objects have: the modules that do so.
IN_CODE = {
    "_is_hf_initialized": "transformers.modeling_utils",
    "_commit_hash": "transformers.configuration_utils",
    "_unsharded_param": "torch.distributed.fsdp._fully_shard._fsdp_param",
}
# Those that only new versions have, and that code asks for first.
NEW = {"_StageForwardMeta", "_StageBackwardMeta", "_derive_grad_metas", "_stage_meta"}
NEW |= {"_user_meta"}
DOCUMENTED = {"_asdict"}  # of named tuples
OWNED = [(owner, names) for owner, *names in map(str.split, NAMES.strip().splitlines())]
# Owners whose private names are the repository's own, or Python's.
OWN = ("self", "os", "sys", "_answering")


@pytest.mark.parametrize("owner, names", [*OWNED, *((owner, None) for owner in OBJECTS)])
def test_is_still_there(owner, names):
    make, names = OBJECTS[owner] if names is None else (lambda: resolve_name(owner), names)
    there = make()
    assert not [f"{owner}.{name} is gone" for name in names if not hasattr(there, name)]


@pytest.mark.parametrize("name", IN_CODE)
def test_a_package_still_uses(name):
    assert name in inspect.getsource(resolve_name(IN_CODE[name]))


def private(tree):
    """Yield the names with a leading underscore that code uses of other objects."""
    for node in ast.walk(tree):
        words = []
        if isinstance(node, ast.ImportFrom):
            words = [*node.module.split("."), *(alias.name for alias in node.names)]
        elif isinstance(node, ast.Attribute):
            words = [] if ast.unparse(node.value) in OWN else [node.attr]
        elif isinstance(node, (ast.Call, ast.Tuple)):  # getattr(x, "_name"), (x, "_name", wrapper)
            second = [*(node.args if isinstance(node, ast.Call) else node.elts), None, None][1]
            words = [second.value] if isinstance(second, ast.Constant) else []
        elif isinstance(node, ast.Constant) and re.match(r"torch[\w.]*:\w", str(node.value)):
            words = re.split("[.:]", node.value)
        yield from (w for w in words if re.match("_[a-zA-Z]", str(w)))


def test_all_of_them_are_listed():
    listed = {
        *IN_CODE,
        *NEW,
        *DOCUMENTED,
        *(name for _, names in OBJECTS.values() for name in names),
    }
    listed |= {word for path, names in OWNED for word in [*path.split("."), *names]}
    used = {}
    for file in [*ROOT.glob("shared/**/*.py"), *ROOT.glob("[01]*/*.py")]:
        if file.parent.name == "programs":  # what others have reported, with what they called
            continue
        used |= {word: str(file) for word in private(ast.parse(file.read_text("utf-8")))}
    assert len(used) > 40 and not {w: file for w, file in used.items() if w not in listed}
