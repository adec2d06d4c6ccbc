"""Promise: the emulated GPU has the workspaces that libraries asked for on an H200.

The record has operations that were not used to find the rules: recurrent layers and batch norms of
cuDNN, linear algebra of cuSOLVER, and cuFFT's transforms. For each it has the KiB of all blocks
that the forward pass allocates, then those of the backward pass, of recurrent layers and batch
norms. Other versions of PyTorch call other functions for some eigenvalues, so fewer are equal.
"""

import json

import pytest
from conftest import NEEDS, emulate

from proof import records

pytestmark = NEEDS

# Print for each operation the bytes of the blocks that each of its passes allocates.
ALLOCATED = """
import json, sys
import torch
import torch.nn as nn
import torch.nn.functional as F

TYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16,
         "fp64": torch.float64, "c64": torch.complex64}

def allocated(function):
    "Call it; return its result, and the bytes of the blocks that it has allocated."
    torch.cuda.memory._record_memory_history(max_entries=100_000, context=None, clear_history=True)
    result = function()
    events = torch.cuda.memory._snapshot()["device_traces"][0]
    torch.cuda.memory._record_memory_history(enabled=None)
    return result, sum(event["size"] for event in events if event["action"] == "alloc")

def both(function, inputs, trains=True):
    y, forward = allocated(function)
    if not trains:
        return [forward]
    gradient = torch.ones_like(y)
    return [forward, allocated(lambda: torch.autograd.grad(y, inputs, gradient))[1]]

def recurrent(cell, inputs, hidden, layers, both_ways, batch, steps, mode, projected, drop, trains):
    more = {"proj_size": projected} if projected else {}
    how = dict(bidirectional=both_ways, dropout=drop, device="cuda", dtype=TYPES[mode], **more)
    layer = getattr(nn, cell)(inputs, hidden, layers, **how)
    x = torch.randn(steps, batch, inputs, device="cuda", dtype=TYPES[mode], requires_grad=trains)
    kept = []  # the state, too: its block must not be freed and reused
    def forward():
        kept[:] = layer(x)
        return kept[0]
    with torch.set_grad_enabled(trains):
        return both(forward, [x, *layer.parameters()], trains)

def batch_norm(images, channels, size, last, mode):
    layout = torch.channels_last if last else torch.contiguous_format
    x = torch.randn(images, channels, size, size, device="cuda", dtype=TYPES[mode])
    x = x.to(memory_format=layout).requires_grad_()
    mean, zeros = torch.zeros(2, channels, device="cuda")
    variance, ones = torch.ones(2, channels, device="cuda")
    bias, weight = zeros.requires_grad_(), ones.requires_grad_()
    function = lambda: F.batch_norm(x, mean, variance, weight, bias, True)
    return both(function, [x, weight, bias])

L = torch.linalg
def positive(x):
    return x @ x.mH + x.shape[-1] * torch.eye(x.shape[-1], device="cuda", dtype=x.dtype)

LINEAR_ALGEBRA = {
    "cholesky": lambda x: L.cholesky(positive(x)),
    "eigh": lambda x: L.eigh(positive(x)),
    "eigvalsh": lambda x: L.eigvalsh(positive(x)),
    "solve": lambda x: L.solve(x, x),
    "cholesky_solve": lambda x: torch.cholesky_solve(x, x),
    "cholesky_inverse": torch.cholesky_inverse,
    "solve_triangular": lambda x: L.solve_triangular(x, x, upper=True),
    "matrix_power": lambda x: L.matrix_power(x, 5),
    "svd": lambda x: L.svd(x, full_matrices=False),
    "svd_full": L.svd,
    "qr_complete": lambda x: L.qr(x, mode="complete"),
    "lstsq": lambda x: L.lstsq(x, x[..., :1]),
    "norm_nuc": lambda x: L.matrix_norm(x, "nuc"),
    "svd_lowrank": lambda x: torch.svd_lowrank(x, 4),
    **{driver: lambda x, driver=driver: L.svd(x, full_matrices=False, driver=driver)
       for driver in ("gesvd", "gesvdj", "gesvda")},
}
TRANSFORMS = {
    "rfft_dim0": lambda x: torch.fft.rfft(x, dim=0),
    "stft": lambda x: torch.stft(x, 400, 160, window=torch.ones(400, device="cuda"),
                                 return_complex=True),
}

def of_one(x, name, functions, module):
    function = functions.get(name) or getattr(module, name)
    return [allocated(lambda: function(x))[1]]

def measure(part, name, *rest):
    if part == "recurrent":
        return recurrent(name, *rest)
    if part == "batch norm":
        return batch_norm(name, *rest)
    shape, mode = rest
    x = torch.randn(*shape, device="cuda", dtype=TYPES[mode])
    algebra = part == "linear algebra"
    return of_one(x, name, *(LINEAR_ALGEBRA, L) if algebra else (TRANSFORMS, torch.fft))

# Memory that stays allocated from the first call on: cuBLAS's workspace, the states of dropout.
torch.ones(2, 2, device="cuda") @ torch.ones(2, 2, device="cuda")
recurrent("LSTM", 2, 2, 2, False, 1, 1, "fp32", 0, 0.5, True)
for part, operation, *_ in json.load(open(sys.argv[1])):
    print(json.dumps(measure(part, *operation)))
"""


def measured():
    """Return the measurements as [part, operation, KiB of each pass]."""
    return records.read("workspaces")[1:]


def right(bytes_found, kib_measured):
    """Return whether all passes are within 2 % or 1 MiB."""
    return all(
        abs(found / 1024 - kib) <= max(0.02 * kib, 1024)
        for found, kib in zip(bytes_found, kib_measured, strict=True)
    )


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """Return [(part, operation, whether it is right)] of all measurements."""
    folder = tmp_path_factory.mktemp("workspaces")
    file = folder / "operations.json"
    file.write_text(json.dumps(measured()))
    printed = emulate(ALLOCATED, folder, "--card", "h200", words=[file])
    found = [json.loads(line) for line in printed.splitlines() if line.startswith("[")]
    pairs = zip(measured(), found, strict=True)
    return [(part, operation, right(new, sizes)) for (part, operation, *sizes), new in pairs]


@pytest.mark.parametrize(
    ("part", "count", "least"),
    [
        ("recurrent", 75, 0.95),
        ("linear algebra", 75, 0.95),
        ("FFT", 75, 1),
        ("batch norm", 10, 1),
    ],
)
def test_workspaces_are_as_measured(compared, part, count, least):
    rows = [is_right for name, _, is_right in compared if name == part]
    assert len(rows) == count
    assert sum(rows) / len(rows) >= least
