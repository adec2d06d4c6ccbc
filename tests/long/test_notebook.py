"""Promise: notebooks for Colab run from top to bottom, here on a CPU; no outputs are stored."""

import re
import shutil

import pytest
from conftest import ROOT, arguments, cpu_only, run
from helpers.emulated import NEEDS

nbformat, nbclient, _ = map(pytest.importorskip, ("nbformat", "nbclient", "ipykernel"))
FILE = "shared/lab/notebook/memory_on_colab.ipynb"


@NEEDS
def test_the_notebook_of_emulated_gpus_runs(tmp_path):
    shutil.copytree(ROOT, tmp_path / "copy", ignore=shutil.ignore_patterns(".*", "out"))
    file = tmp_path / "copy" / "shared/lab/notebook/emulated_gpus.ipynb"
    notebook = nbformat.read(file, 4)
    client = nbclient.NotebookClient(notebook, resources={"metadata": {"path": file.parent}})
    client.execute(env=cpu_only(PIP_NO_INDEX="1", PYTHONPATH="", EMULATE=""))
    said = ["".join(o.get("text", "") for o in c.get("outputs", ())) for c in notebook.cells]
    first, second, own = said[3], said[5], said[8]
    assert "CUDA out of memory" in first and "CUDA out of memory" not in second
    assert "3 updates in" in second and "emulated RTX 3060 12 GB, peaks:" in own
    assert re.search(r"^RTX 3060 12 GB, 12.49 GB: ", own, re.MULTILINE)


def test_the_notebook_runs(tmp_path):
    """In a copy, found from the notebook's folder; then the commands for two GPUs, here."""
    shutil.copytree(ROOT, tmp_path / "copy", ignore=shutil.ignore_patterns(".*", "out"))
    notebook, at = nbformat.read(ROOT / FILE, 4), {"path": (tmp_path / "copy" / FILE).parent}
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in notebook.cells)
    client = nbclient.NotebookClient(notebook, resources={"metadata": at})
    client.execute(env=cpu_only(PIP_NO_INDEX="1", PYTHONPATH=""))  # nothing is installed
    outputs = [its for cell in notebook.cells for its in cell.get("outputs", ())]
    said = "".join(its.get("text", "") for its in outputs)
    assert re.findall(r"(?m)^(0\d)_\w+/train +done", said) == ["04", "05", "06", "07"]
    assert "Nothing is missing." in said and "Skipped: this needs two GPUs" in said
    assert re.search(r"^T4, 15.63 GB: .* GB are left$", said, re.MULTILINE)
    (frame,) = [its.data["text/html"] for its in outputs if "text/html" in its.get("data", ())]
    assert "srcdoc=" in frame and "id=&quot;05_grad_accum-train&quot;" in frame
    predicts, trains = re.findall(r'sh\("(python .*)"\)', notebook.cells[-1].source)
    run(*arguments(predicts))
    assert (ROOT / arguments(trains)[0]).exists()
