"""Promise: the emulated GPU has the workspaces that cuDNN asked for on an H200.

The record has layers that were not used to find the rules, of networks and random ones. For each it
has the images, the precision and layout, and the bytes of cuDNN's workspaces: of the forward pass,
of the gradient of the inputs, and of that of the weights.
"""

import json

import pytest
from conftest import NEEDS, emulate

from proof import records

pytestmark = NEEDS

# Print for each measurement the bytes that are allocated beside the results.
WORKSPACES = """
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


def measured():
    """Return the measurements as [[group, layer, [images, mode, three workspaces], ...], ...]."""
    rows = []
    for line in records.read("convolutions"):
        if isinstance(line, dict):
            group = line["group"]
        else:
            rows.append([group, *line])
    return rows


def right(bytes_found, bytes_measured):
    """Return whether a workspace is within 2 % or 1 MiB."""
    return abs(bytes_found - bytes_measured) <= max(0.02 * bytes_measured, 2**20)


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """Return [(group, mode, pass, whether it is right)] of all workspaces."""
    folder = tmp_path_factory.mktemp("convolutions")
    file = folder / "layers.json"
    file.write_text(json.dumps([row[1:] for row in measured()]))
    printed = emulate(WORKSPACES, folder, "--card", "h200", words=[file])
    found = iter([json.loads(line) for line in printed.splitlines() if line.startswith("[")])
    rows = []
    for group, _, *measurements in measured():
        for _, mode, *sizes in measurements:
            for name, size, bytes_found in zip(("result", "inputs", "weights"), sizes, next(found)):
                rows.append((group, mode, name, right(bytes_found, size)))
    return rows


def share(rows, group, **wanted):
    """Return the share of a group's rows that are right."""
    chosen = [
        is_right
        for of, mode, name, is_right in rows
        if of == group and wanted.items() <= {"mode": mode, "name": name}.items()
    ]
    return sum(chosen) / len(chosen)


def test_workspaces_are_as_measured(compared):
    assert len(compared) == 1200 + 600
    assert share(compared, "networks") >= 0.895
    assert share(compared, "random") >= 0.77


@pytest.mark.parametrize(
    ("name", "networks", "random"),
    [("result", 0.92, 0.86), ("inputs", 0.96, 0.84), ("weights", 0.8, 0.62)],
)
def test_of_each_pass(compared, name, networks, random):
    assert share(compared, "networks", name=name) >= networks
    assert share(compared, "random", name=name) >= random


@pytest.mark.parametrize(
    ("mode", "least"),
    [("fp32", 0.9), ("fp32_last", 0.84), ("fp16", 0.9), ("fp16_last", 0.93), ("bf16", 0.91)],
)
def test_in_each_precision_and_layout(compared, mode, least):
    assert share(compared, "networks", mode=mode) >= least


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
