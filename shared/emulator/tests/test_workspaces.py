"""Promise: the emulated GPU has the workspaces that libraries asked for on an H200.

The records have operations that were not used to find the rules: convolutions, of networks and at
random, with the bytes of cuDNN's workspaces in each pass; recurrent layers and batch norms of
cuDNN, linear algebra of cuSOLVER, and cuFFT's transforms, with the KiB of all blocks that the
forward pass allocates, then, of layers, the backward pass. Other versions of PyTorch call other
functions for some eigenvalues, so fewer are equal.
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


# Print for each measurement the bytes that are allocated beside the results.
CONVOLUTIONS = """
import json, sys
import torch
import torch.nn.functional as F

torch.cuda.memory._record_memory_history(max_entries=100_000, context=None)
TYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
LAST = {2: torch.channels_last, 3: torch.channels_last_3d}

def beside(function):
    "Call it; return its result, and the bytes of the blocks that it has allocated beside that."
    torch.cuda.memory._record_memory_history(max_entries=100_000, context=None, clear_history=True)
    result = function()
    events = torch.cuda.memory._snapshot()["device_traces"][0]
    allocated = sum(event["size"] for event in events if event["action"] == "alloc")
    return result, allocated - result.nbytes

for layer, *measurements in json.load(open(sys.argv[1])):
    dims, transposed, inputs, outputs, kernel, *window, groups, size, bias = layer
    how = dict(zip(("stride", "padding", "dilation"), window), groups=groups)
    function = getattr(F, f"conv_transpose{dims}d" if transposed else f"conv{dims}d")
    pair = (inputs, outputs // groups) if transposed else (outputs, inputs // groups)
    for images, mode, *_ in measurements:
        kind = TYPES[mode.partition("_")[0]]
        layout = LAST[dims] if mode.endswith("_last") else torch.contiguous_format
        options = dict(dtype=kind, device="cuda", memory_format=layout)
        x = torch.empty(images, inputs, *size, **options).requires_grad_()
        w = torch.empty(*pair, *kernel, **options).requires_grad_()
        y, forward = beside(lambda: function(x, w, **how))
        gradient = torch.empty_like(y)
        found = [forward]
        for of in (x, w):
            of_it = lambda: torch.autograd.grad(y, of, gradient, retain_graph=True)[0]
            found.append(beside(of_it)[1])
        print(json.dumps(found))
        del x, w, y, gradient
        torch.cuda.empty_cache()
"""

# With benchmark, all plans are tried once, and the largest workspace is allocated for that.
SETTINGS = """
import torch
import torch.nn.functional as F

def allocated(images, kind=torch.float32):
    "Return the bytes of blocks beside a convolution's result; how many copies x would fill."
    x = torch.empty(images, 64, 56, 56, device="cuda", dtype=kind)
    w = torch.empty(64, 64, 3, 3, device="cuda", dtype=kind)
    torch.cuda.memory._record_memory_history(max_entries=100, context=None, clear_history=True)
    F.conv2d(x, w, padding=1)
    events = torch.cuda.memory._snapshot()["device_traces"][0]
    _, *sizes = (event["size"] for event in events if event["action"] == "alloc")
    return [size // x.nbytes for size in sizes]

assert allocated(16) == [1]  # TF32 writes such a result in NCHW: x alone is copied
torch.backends.cudnn.benchmark = True
assert allocated(15) == [2, 1]
assert allocated(15) == [1]  # it has been chosen
torch.backends.cudnn.allow_tf32 = False
assert allocated(14) == allocated(13, torch.float64) == []
torch.backends.cudnn.benchmark = False
assert allocated(12) == []
"""


def right(bytes_found, bytes_measured):
    """Return whether each is within 2 % or 1 MiB."""
    return all(
        abs(found - size) <= max(0.02 * size, 2**20)
        for found, size in zip(bytes_found, bytes_measured, strict=True)
    )


def printed(program, measured, folder):
    """Return the lists that a program prints about measurements on an emulated H200."""
    file = folder / "measured.json"
    file.write_text(json.dumps(measured))
    lines = emulate(program, folder, "--card", "h200", words=[file]).splitlines()
    return [json.loads(line) for line in lines if line.startswith("[")]


def test_workspaces_are_as_measured(tmp_path):
    measured = records.read("workspaces")[1:]  # part, operation, KiB of each pass
    found = printed(ALLOCATED, measured, tmp_path)
    of_parts = {part: [] for part, *_ in measured}
    for (part, _, *kib), new in zip(measured, found, strict=True):
        of_parts[part].append(right(new, [1024 * size for size in kib]))
    assert {part: len(rows) for part, rows in of_parts.items()} == {
        "recurrent": 75,
        "linear algebra": 75,
        "FFT": 75,
        "batch norm": 10,
    }
    for part, rows in of_parts.items():
        assert sum(rows) / len(rows) >= (0.95 if part in ("recurrent", "linear algebra") else 1)


def test_workspaces_of_convolutions_are_as_measured(tmp_path):
    groups, layers = [], []  # a layer, then its [images, mode, three workspaces], ...
    for line in records.read("convolutions"):
        if isinstance(line, dict):
            group = line["group"]
        else:
            layers.append(line)
            groups += [group] * (len(line) - 1)
    sizes = [size for _, *measurements in layers for _, _, *size in measurements]
    found = printed(CONVOLUTIONS, layers, tmp_path)
    of_groups = {"networks": [], "random": []}
    for group, here, there in zip(groups, found, sizes, strict=True):
        of_groups[group] += [right([a], [b]) for a, b in zip(here, there, strict=True)]
    assert sum(map(len, of_groups.values())) == 1200 + 600
    for group, least in {"networks": 0.895, "random": 0.77}.items():
        rows = of_groups[group]
        assert sum(rows) / len(rows) >= least, group


def test_settings_choose_among_plans(tmp_path):
    emulate(SETTINGS, tmp_path, "--card", "h200")


@pytest.mark.parametrize(
    ("card", "groups", "said"),
    [("h200", 1, "peaks"), ("a100", 1, "as measured on Hopper"), ("a100", 2, "grouped")],
)
def test_the_report_says_what_is_an_assumption(card, groups, said, tmp_path):
    code = f"""
    import torch
    import torch.nn.functional as F
    x = torch.empty(2, 64, 8, 8, device="cuda")
    F.conv2d(x, torch.empty(64, {64 // groups}, 3, 3, device="cuda"), groups={groups})
    """
    report = emulate(code, tmp_path, "--card", card)
    assert said in " ".join(report.split())
