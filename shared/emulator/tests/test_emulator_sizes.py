"""Promise: a result whose size depends on values is as large as a GPU's, or as it can get."""

import json
import re

import pytest
from conftest import NEEDS, emulate

pytestmark = NEEDS

# Of tensors without values: an operation, and the largest size of its results that they allow, in
# the numbers below. A number without a bound, such as the largest in an index, is 1.
ROWS, N, FEW = 2, 2_000_000, 9_000
LARGEST = {
    "x.nonzero()": [ROWS * N, 2],
    "torch.nonzero(x, as_tuple=True)[1]": [ROWS * N],
    "torch.nonzero(x, out=index.new_empty(0))": [ROWS * N, 2],
    "torch.nonzero_static(x, size=7)": [7, 2],
    "torch.argwhere(x)": [ROWS * N, 2],
    "torch.where(x > 0)[0]": [ROWS * N],
    "x[x > 0]": [ROWS * N],
    "x[:, row > 0]": [ROWS, N],
    "x.index_put((x > 0,), one)": [ROWS, N],
    "x.masked_select(x > 0)": [ROWS * N],
    "x.masked_select(row > 0)": [ROWS * N],
    "x.unique()": [ROWS * N],
    "x.unique(sorted=False)": [ROWS * N],
    "x.unique(return_inverse=True, return_counts=True)[2]": [ROWS * N],
    "index.to(torch.int8).unique()": [256],
    "(x > 0).unique()": [2],
    "x.unique(dim=0)": [ROWS, N],
    "x.unique(dim=1)": [ROWS, N],
    "x.unique(dim=1, return_inverse=True, return_counts=True)[1]": [N],
    "(x > 0).unique(dim=1)": [ROWS, 2**ROWS],
    "x.unique_consecutive()": [ROWS * N],
    "(x > 0).unique_consecutive()": [ROWS * N],
    "x.unique_consecutive(dim=1)": [ROWS, N],
    "torch.repeat_interleave(index)": [N],
    "row.repeat_interleave(index)": [N],
    "row.repeat_interleave(index, output_size=7)": [7],
    "index.bincount()": [2],
    "index.bincount(minlength=7)": [7],
    "x.histc(7)": [7],
    "torch.combinations(row[:2000])": [2000 * 1999 // 2, 2],
    "torch.combinations(row[:200], r=3)": [200 * 199 * 198 // 6, 3],
    "torch.combinations(row[:2000], with_replacement=True)": [2000 * 2001 // 2, 2],
    "torchvision.ops.nms(boxes[:FEW], row[:FEW], 0.5)": [FEW],
    "torchvision.ops.batched_nms(boxes[:FEW], row[:FEW], index[:FEW], 0.5)": [FEW],
    "x.to_sparse().indices()": [2, ROWS * N],
    "x.to_sparse(1).values()": [ROWS, N],
    "x.to_sparse_csr().values()": [ROWS * N],
    "x.to_sparse_csc().values()": [ROWS * N],
    "x.to_sparse_bsr((2, 1000)).values()": [N // 1000, 2, 1000],
    "x.to_sparse_bsc((2, 1000)).values()": [N // 1000, 2, 1000],
    "sparse(ROWS, N).coalesce().values()": [N],
    "sparse(ROWS, 5).coalesce().values()": [ROWS * 5],
    "(x.to_sparse() + x.to_sparse()).coalesce().values()": [ROWS * N],
    "(x.to_sparse() * x.to_sparse()).coalesce().values()": [ROWS * N],
    "torch.sparse.mm(sparse(ROWS, 5), sparse(5, 6))._values()": [ROWS * 6],
    "torch.sparse.sum(x.to_sparse(), 0)._values()": [N],
    "sparse(ROWS, N).index_select(1, index[:3])._values()": [3 * N],
    "x.to_sparse().index_select(1, index[:3])._values()": [ROWS * 3],
    "(x.to_sparse_csr() + x.to_sparse_csr()).values()": [ROWS * N],
    "(x.to_sparse_csr() @ x.t().to_sparse_csr()).values()": [ROWS * ROWS],
    "embedding_gradient().coalesce().values()": [1000, 30],
    "jagged(padded, torch.randn(2**20, device='cuda')[:3].long())": [N, 4],
    "torch._nested_tensor_from_mask(padded, mask).to_padded_tensor(0)": [2, N // 2, 4],
}
# Of small tensors, all is as on a GPU.
KNOWN = {
    "small.nonzero()": [4, 1],
    "small[small > 2]": [2],
    "small.masked_select(small > 2)": [2],
    "small.unique()": [4],
    "(small > 0).unique()": [2],
    "torch.stack([small, small]).unique(dim=0)": [1, 5],
    "torch.stack([small, small]).unique(dim=1)": [2, 4],
    "small.unique_consecutive()": [4],
    "torch.stack([small, small]).unique_consecutive(dim=1)": [2, 4],
    "torch.repeat_interleave(small)": [9],
    "small.bincount()": [4],
    "small.histc(7)": [7],
    "torch.combinations(small)": [10, 2],
    "torchvision.ops.nms(small[:, None] + corners, small.float(), 0.5)": [4],
    "small.to_sparse().values()": [4],
    "torch.stack([small, small]).to_sparse(1).indices()": [1, 2],
    "torch.stack([small, small]).to_sparse_csr().values()": [8],
    "torch.sparse_coo_tensor(small[None], small, (4,)).coalesce().values()": [4],
    "torch.sparse_coo_tensor(small[None], small, (4,)).index_select(0, small[:2])._values()": [2],
    "jagged(torch.ones(2, 5, 1, device='cuda'), small[[0, 4, 2]])": [3, 1],
}
PROGRAM = """
import json, sys, torch, torchvision
ROWS, N, FEW = SIZES
x = torch.randn(ROWS, N, device="cuda")
row, one = x[0], torch.ones((), device="cuda")
index = torch.randint(0, 5, (N,), device="cuda")
boxes = torch.randn(N, 4, device="cuda")
padded, mask = boxes.view(2, N // 2, 4), torch.ones(2, N // 2, dtype=torch.bool, device="cuda")
small = torch.tensor([0, 1, 3, 3, 2], device="cuda")
corners = torch.tensor([[0.0, 0, 1, 1]], device="cuda")
def sparse(*size):
    return torch.sparse_coo_tensor(index[None].expand(2, -1), row, size)
def embedding_gradient():
    table = torch.nn.Embedding(1000, 30, sparse=True, device="cuda")
    table(index).sum().backward()
    return table.weight.grad
def jagged(padded, offsets):
    return torch.ops.aten._padded_dense_to_jagged_forward(padded, [offsets])
sizes = {}
for code in json.loads(sys.argv[1]):
    try:
        sizes[code] = [*eval(code).shape]
    except Exception as error:
        sizes[code] = repr(error)
print(json.dumps(sizes))
"""
# In the backward pass, PyTorch reads in a thread without lines of the program's.
BACKWARD = """
import torch
x = torch.randn(1024, 1024, device="cuda", requires_grad=True)
y = x.to_sparse()
(y * y).coalesce().values().sum().backward()
"""


@pytest.fixture(scope="module")
def sizes(tmp_path_factory):
    """Return {operation: size of its result}, as one program finds them."""
    program = PROGRAM.replace("SIZES", f"{ROWS}, {N}, {FEW}")
    words = [json.dumps([*LARGEST, *KNOWN])]
    printed = emulate(program, tmp_path_factory.mktemp("sizes"), "--card", "h200", words=words)
    return json.loads(re.search(r"^\{.*\}$", printed, re.MULTILINE)[0])


@pytest.mark.parametrize("operation", [*LARGEST, *KNOWN])
def test_size_that_depends_on_values(operation, sizes):
    assert sizes[operation] == {**LARGEST, **KNOWN}[operation]


def test_a_size_read_in_the_backward_pass_has_a_line(tmp_path):
    printed = emulate(BACKWARD, tmp_path)
    lines = re.findall(r"^  (.+)  \(how many values\)", printed, re.MULTILINE)
    assert [line.rpartition("script.py:")[2] for line in lines] == ["3", "4"]
