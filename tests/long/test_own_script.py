"""Promise: any training script runs unedited, and its GPU memory is PyTorch's own count."""

import re
import shutil

import pytest
from conftest import PLAIN, read_json, run
from helpers.emulated import NEEDS
from helpers.own import answer, predicted
from helpers.today import some

from shared.lab.records import scripts
from shared.lab.records.reading import read

pytestmark = NEEDS

MIB = 2**20
SHORT = ["--preset", "tiny", "--data", "fake", "--no-pretrained", "--max-steps", 3, "--record"]
# A weight of 4 MiB with Adam, and 2 MiB of inputs; it calls what real scripts call.
TRAINS = """
import sys, torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

assert torch.cuda.is_available() and torch.cuda.get_device_capability() >= (7, 0)
for device in ("cuda", "cuda:0", torch.device("cuda"), torch.device("cuda", 0)):
    made = torch.ones(3, device=device)
    assert made.is_cuda and made.device.type == "cuda" and str(made.device) == "cuda:0"
assert torch.randperm(5).sort().values.tolist() == [0, 1, 2, 3, 4]  # on the host, values exist
mask = made > 0
assert mask.nonzero().shape == (3, 1) and made[mask].shape == (3,) and len(mask.unique()) == 1
assert torch.isfinite(made.sum()) and not made.isnan().any() and made.tolist() == [1, 1, 1]
with torch.device("cuda"):
    model = nn.Linear(1024, 1024, bias=False)
assert torch.cuda.memory_allocated() == 4 * 2**20 + 2 * 512
optimizer = torch.optim.Adam(model.parameters())
loader = DataLoader(TensorDataset(torch.rand(512 * 100, 1024)), batch_size=512, num_workers=2)
for epoch in range(1000):
    for x, in loader:
        loss = model(x.cuda(non_blocking=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if loss.item() < 0.5:
            sys.exit("the loss cannot be known")
    torch.save({"model": model.state_dict()}, "mine.pt")
    model.load_state_dict(torch.load("mine.pt", weights_only=True)["model"])
    print(f"epoch {epoch}, at most {torch.cuda.max_memory_allocated()} bytes")
"""
MODELS_IN_TURN = """
import torch

def made():
    model = torch.nn.Linear(1024, 1024, bias=False, device="cuda")
    return model, torch.optim.SGD(model.parameters(), lr=0.1)

for n in range(3):
    model, optimizer = made()
    for _ in range(4):
        model(torch.ones(8, 1024, device="cuda")).mean().backward()
        optimizer.step()
print("at most", torch.cuda.max_memory_allocated())
"""
# A model whose logits do not fit on a card of 1 GB beside CUDA's context.
TOO_LARGE = """
import torch
model = torch.nn.Linear(1024, 50_000).cuda()
for n in range(9):
    loss = model(torch.ones(512, 1024, device="cuda")).square().mean()
    loss.backward()
"""
# With torch.compile(), the three activations of a chain become one kernel's result.
COMPILED = """
import torch
model = torch.nn.Linear(512, 512).cuda()
chain = torch.compile(lambda x: model(x).sin().cos().tanh().sum())
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for n in range(5):
    chain(torch.ones(65536, 512, device="cuda")).backward()
    optimizer.step()
"""
# The prediction of mine.py, which says after 2 s where it is.
SOONER = """
import runpy, sys
from emulated_gpu.why.runs import INSIDE
INSIDE[1:] = ["-c", "import sys; from emulated_gpu.why import inside, script; script.LONG = 2; "
    "inside.main(sys.argv[1])"]
sys.argv = ["emulated-gpu", "why", "mine.py"]
runpy.run_module("emulated_gpu", run_name="__main__")
"""
# It compiles for long, and fails after its updates.
COMPILES_AND_FAILS = """
import sys, time, torch
def compiled(graph, inputs):
    time.sleep(5)
    return graph.forward
model = torch.nn.Linear(4096, 4096).cuda()
fast = torch.compile(model, backend=compiled)
for _ in range(4):
    fast(torch.ones(8, 4096, device="cuda")).sum().backward()
    with torch.no_grad():
        model.weight -= model.weight.grad
{}
"""
# {script: (exit code, a part of the last line)}
ENDS = {
    "import sys\nsys.exit(3)": (3, ""),
    "import torch\nfor n in range(3)": (1, "SyntaxError: expected ':'"),
    "import torch\ntorch.ones(2, 3).cuda() @ torch.ones(2, 3).cuda()": (1, "RuntimeError: "),
    "import urllib.request as r\nr.urlopen('http://127.0.0.1:9')": (2, "mine.py:2: not reached"),
    "import torch\ntorch.nn.Linear(4, 4)(torch.ones(2, 4)).sum().backward()": (
        2,
        "mine.py: nothing was allocated on a GPU; is .cuda() missing?",
    ),
    "print('nothing')": (2, "mine.py: nothing ran on the GPU; does it train on cuda?"),
}


@pytest.mark.parametrize("name", some("plain", [PLAIN[0], PLAIN[4], PLAIN[-1]], 1))
def test_plain_scripts_need_what_they_measure_themselves(name, tmp_path):
    """Their own Meter reads PyTorch's counters on the same emulated GPU, beside a ledger."""
    module = scripts.get(name).load()
    devices = ["--devices", module.DEVICES] if module.DEVICES > 1 else []
    # A copy in another folder is a script of the user's.
    script = tmp_path / scripts.get(name).folder / "plain.py"
    script.parent.mkdir()
    shutil.copy(scripts.get(name).path, script)
    arguments = ["--", *SHORT, tmp_path / "record"]
    run("-m", "shared", "predict", script, *devices, "--json", tmp_path / "why", *arguments)
    (measured,) = read(tmp_path / "record")[0]
    predicted = read_json(tmp_path / "why")
    peak = measured["train"]["device_peak_gb"]
    assert predicted["train"]["device_peak_gb"] == pytest.approx(peak, 5e-3)
    for label in ("parameters", "gradients", "optimizer states", "workspaces"):
        there, here = (r["train"]["breakdown_gb"].get(label, 0) for r in (measured, predicted))
        assert here == pytest.approx(there, rel=0.03, abs=3e-4), label


def test_a_script_sees_a_gpu_and_is_counted_by_hand(tmp_path):
    """The peak is in the backward pass: with PyTorch 2.15, when the gradient has just arrived."""
    page, snapshot, file = (tmp_path / name for name in ("why.html", "mine.pickle", "why.json"))
    options = ["--card", 24, "--html", page, "--snapshot", snapshot, "--json", file]
    said = predicted(TRAINS, tmp_path, *options)
    r = read_json(file)
    phase = r["train"]
    held = {label: gb * 1e9 / MIB for label, gb in phase["breakdown_gb"].items()}
    # Where a workspace is kept, there is more in memory just before.
    assert held["parameters"] == 4 and held.get("gradients", 4) == 4 and round(held["inputs"]) == 2
    assert round(held["optimizer states"]) == 8
    assert sum(held.values()) * MIB == pytest.approx(phase["device_peak_gb"] * 1e9)
    line = TRAINS.splitlines().index("        loss.backward()") + 1
    assert r["peak_at"]["train"]["line"] == f"mine.py:{line}"
    assert (
        f", line {line}</text>" in page.read_text() and "<td>1024 × 1024</td>" in page.read_text()
    )
    peak = round(phase["device_peak_gb"] * 1e9)
    assert f"epoch 0, at most {peak} bytes" in said and "epoch 4" not in said
    assert "reads a number that no kernel computed" in said
    assert "GPU, 24 GB: your script needs" in said and "Stopped in" in said
    answer = said[said.index("A GPU, 24 GB") :].splitlines()
    assert len(answer) <= 12 and answer[2].startswith("The peak: ") and answer == r["answer"]
    label, gb = max(phase["breakdown_gb"].items(), key=lambda item: item[1])
    assert answer[3].startswith(f"It holds: {label} {gb * 1e3:.1f} MB, ")
    assert re.search(r"An update takes (about )?[\d.]+( to [\d.]+)? ms.*: ", said)
    assert snapshot.stat().st_size > 1000
    made = {"mine.py", page.name, snapshot.name, file.name}
    assert {path.name for path in tmp_path.iterdir()} == made


def test_what_does_not_fit_ends_in_pytorch_s_own_words(tmp_path):
    said = predicted(TOO_LARGE, tmp_path, "--card", 0.94)
    assert "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 196.00 MiB" in said
    assert "GPU, 0.94 GB: your script needs" in said and "does not fit: out of memory in" in said
    assert "No known card" not in said and "--card rtx" in said


def test_details_are_all_notes(tmp_path):
    text = "import torch\nlarge = torch.ones(1 << 20, device='cuda')\n" + "large.sum().item()\n" * 5
    text += "model = torch.nn.Linear(64, 64, device='cuda')\n"
    text += "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
    text += "for _ in range(9):\n    model(torch.ones(8, 64, device='cuda')).sum().backward()\n"
    text += "    optimizer.step()\n"
    short, long = (predicted(text, tmp_path, *options) for options in ((), ("--details",)))
    assert 0 < short.count("that no kernel computed") < 5 and "more note" in short
    assert long.count("that no kernel computed") == 5


def test_torch_compile_is_real(tmp_path):
    said, record = answer(COMPILED, tmp_path)
    eager = float(re.search(r"without it, ([\d.]+) MB would be allocated", said)[1])
    assert record["train"]["device_peak_gb"] * 1e3 < 0.8 * eager


def test_a_script_that_never_ends_has_a_line_and_ctrl_c_shows_what_is_known(tmp_path):
    """It calls its model for ever, and has no backward pass."""
    (tmp_path / "mine.py").write_text(
        "import os, signal, time, torch\nmodel = torch.nn.Linear(4096, 4096).cuda()\n"
        "end = time.time() + 4\nwhile True:\n    model(torch.ones(64, 4096).cuda())\n"
        "    if time.time() > end:\n        os.kill(os.getppid(), signal.SIGINT)\n"
        "        end += 60\n"
    )
    said = run("-c", SOONER, code=130, cwd=tmp_path)
    assert re.search(r"still in mine.py:\d after 2 s, with no backward pass; Ctrl-C ends it", said)
    assert "by Ctrl-C: what comes after it is not in the figures" in said
    assert "parameters 67.1 MB" in said and said.rstrip().endswith("interrupted")


@pytest.mark.parametrize(
    "end, error", [("1 / 0", "ZeroDivisionError"), ("sys.exit(3)", "SystemExit")]
)
def test_a_script_that_fails_after_its_updates_has_their_answer(end, error, tmp_path):
    (tmp_path / "mine.py").write_text(COMPILES_AND_FAILS.format(end))
    said = run("-c", SOONER, cwd=tmp_path)
    assert re.search(r"still in mine.py:\d after 4 s, .*torch.compile is at work", said)
    assert f"Stopped in mine.py:12, after update 3, by {error}: " in said
    assert "parameters 67.1 MB" in said


@pytest.mark.parametrize("text", ENDS)
def test_mistakes_are_the_script_s_own(text, tmp_path):
    code, last = ENDS[text]
    said = predicted(text, tmp_path, code=code).strip()
    assert last in said.rpartition("\n")[2] and "emulated_gpu" not in said and "runpy" not in said
    assert ('mine.py", line 1' in said or 'mine.py", line 2' in said) == (code == 1)


def test_memory_that_grows_with_every_update_is_named_with_its_line(tmp_path):
    loop = "import collections, torch\nmodel = torch.nn.Linear(1024, 1024, device='cuda')\n"
    loop += "kept, few = [], collections.deque(maxlen=4)\n"
    loop += "optimizer = torch.optim.Adam(model.parameters())\n"
    loop += "for n in range(9):\n    loss = model(torch.ones({}, 1024, device='cuda')).mean()\n"
    loop += "    loss.backward()\n    optimizer.step()\n    optimizer.zero_grad()\n"
    new = "torch.empty({} << 10, device='cuda')"
    for ending, what in (
        (f"    kept.append({new.format(3 << 10)})\n", "Memory grows by 12.6 MB"),
        (f"    kept.append({new.format(32)})\n", "Memory grows by 0.1 MB"),
        # Each stream has memory of its own, which the allocator keeps for it.
        (
            f"    with torch.cuda.stream(torch.cuda.Stream()): {new.format(3 << 10)}\n",
            "Reserved mem",
        ),
        (f"    few.append({new.format(3 << 10)})\n", None),  # it grows four times
    ):
        said = predicted((loop + ending).format(64), tmp_path)
        assert ("emory grows" in said) == bool(what)
        if what:
            assert what in said and "with every update, most of it allocated in mine.py:10:" in said
            assert "Nothing has to be saved" not in said
        if what == "Reserved mem":
            assert "Reserved memory grows by 12.6 MB" in said
    assert "emory grows" not in predicted(loop.format("4096 * (n + 1)"), tmp_path)


def test_a_model_that_is_gone_takes_no_memory(tmp_path):
    """Models one after the other have PyTorch's counters as without a prediction around them."""
    _, record = answer(MODELS_IN_TURN, tmp_path)
    (most,) = re.findall(r"at most (\d+)", run("-m", "emulated_gpu", tmp_path / "mine.py"))
    assert record["train"]["device_peak_gb"] * 1e9 == int(most)


def test_the_page_is_one_file_with_the_line_of_the_peak(tmp_path):
    """Nothing on it is loaded from elsewhere, and names cannot become HTML."""
    name = "<b>&mine.py"
    script = MODELS_IN_TURN.replace("range(3)", "range(1)")
    (tmp_path / name).write_text(script)
    page = tmp_path / "why.html"
    run("-m", "emulated_gpu", "why", name, "--html", page, cwd=tmp_path)
    text = page.read_text()
    assert not re.search(r"https?:|src=|url\(|@import|<script|<link", text)
    assert "<b>" not in text and "&lt;b&gt;&amp;mine.py" in text
    line = script[: script.index("        model(torch")].count("\n") + 1
    assert f"line {line}</text>" in text and "<td>1024 × 1024</td>" in text
