"""Promise: any training script runs unedited, and its GPU memory is counted to the byte."""

import pytest
from conftest import PLAIN, read_json, run
from simulations import near, simulated
from versions import made_here

from shared.evidence.published import command
from shared.predict.jobs import run_jobs
from shared.records import scripts, stored
from shared.records.views import read

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
# {script: (exit code, a part of the last line)}
ENDS = {
    "import sys\nsys.exit(3)": (3, ""),
    "def f(): return 1 / 0\nf()": (1, "ZeroDivisionError: division by zero"),
    "import torch\ntorch.ones(2, 3).cuda() @ torch.ones(2, 3).cuda()": (1, "RuntimeError: "),
    "import urllib.request as r\nr.urlopen('http://127.0.0.1:9')": (2, "mine.py:2: not reached"),
    "print('nothing')": (2, "mine.py: nothing ran on the GPU; does it train on cuda?"),
    "import torch\ntorch.empty(9, device='cuda').numpy().ctypes.data\ntorch.cuda.CUDAGraph()": (
        2,
        "mine.py:3: cannot be simulated",
    ),
}


@pytest.fixture(scope="module")
def predicted():
    return simulated(PLAIN, "gpu", "tiny", updates=3)


@pytest.mark.parametrize("name", PLAIN)
def test_plain_scripts_need_what_is_predicted_for_them(name, predicted, tmp_path):
    script, then = scripts.get(name), predicted[name]
    devices = ["--devices", then["world_size"]] if then["world_size"] > 1 else []
    run("-m", "shared.predict", script.path, *devices, "--", *SHORT, tmp_path / "record")
    now = read(tmp_path / "record")[0][0]
    assert now["train"]["device_peak_gb"] == then["train"]["device_peak_gb"]
    assert now["train"]["device_reserved_gb"] == then["train"]["device_reserved_gb"]
    assert now["load"]["device_peak_gb"] == then["load"]["device_peak_gb"]


def test_a_script_sees_a_gpu_and_is_counted_by_hand(tmp_path):
    """The peak is in the backward pass, with all gradients and some activations in memory."""
    (tmp_path / "mine.py").write_text(TRAINS)
    options = ["--torch", "2.15", "--fits", 24, "--timeline", tmp_path / "drawn"]
    said = run("-m", "shared.predict", tmp_path / "mine.py", *options, cwd=tmp_path)
    drawn = read_json(tmp_path / "drawn" / "timelines.json")[0]
    r, phase = drawn["record"], drawn["record"]["train"]
    held = {label: gb * 1e9 / MIB for label, gb in phase["breakdown_gb"].items()}
    assert held["parameters"] == 4 and held["gradients"] == 4 and round(held["inputs"]) == 2
    assert round(held["optimizer states"]) == 8
    line = TRAINS.splitlines().index("        loss.backward()") + 1
    assert r["peak_at"]["train"]["line"] == f"mine.py:{line}" and line in drawn["lines"]
    peak = round(phase["device_peak_gb"] * 1e9)
    assert f"epoch 0, at most {peak} bytes" in said and "epoch 4" not in said
    assert "reads a value that a simulation does not have; 1.0 is used" in said
    assert "GPU, 24 GB: with CUDA" in said and "Stopped in" in said
    assert {path.name for path in tmp_path.iterdir()} == {"mine.py", "drawn"}


@pytest.mark.parametrize("text", ENDS)
def test_mistakes_are_the_script_s_own(text, tmp_path):
    code, last = ENDS[text]
    (tmp_path / "mine.py").write_text(text)
    said = run("-m", "shared.predict", tmp_path / "mine.py", code=code).strip()
    assert last in said.rpartition("\n")[2] and "shared/predict/own" not in said
    assert ('mine.py", line 1' in said or 'mine.py", line 2' in said) == (code == 1)


def test_scripts_of_others_are_as_recorded(request):
    """Needs --scripts FOLDER, into which shared.evidence.published has fetched them."""
    if not (folder := request.config.getoption("--scripts")):
        pytest.skip("needs --scripts FOLDER")
    rows = [row for s in command.SOURCES if "commit" in s for row in command.rows(s)]
    there = [row for row in rows if (folder / row["folder"]).exists()]
    then = {(r["source"], r["what"]): r for r in read_json(stored.PUBLISHED)}
    found = run_jobs([(command.unedited.simulate, row, folder) for row in there])
    assert there
    for row, figures in zip(there, found):
        now, record = figures["peak"], then[row["title"], row["words"]]
        assert now.get("why") == record.get("why"), row["script"]
        if "why" not in now:
            assert now["allocated_gb"] == near(record["allocated_gb"], made_here(record)), row
