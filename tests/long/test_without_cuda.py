"""Promise: where no GPU can be emulated, one line says what is missing, and the rest works."""

import pytest
from conftest import ROOT, run

from shared.lab.records import stored

ELSEWHERE = {"PATH": "/nowhere", "CC": "no-compiler"}  # no C compiler


@pytest.mark.parametrize(
    "words",
    [
        ("-m", "shared", "predict", "06", "--card", "l4"),
        ("-m", "shared", "predict", ROOT / "08_fsdp" / "own_script.py"),
        ("-m", "emulated_gpu", ROOT / "06_sgd" / "train.py"),
    ],
)
def test_a_line_says_what_is_missing(words, tmp_path):
    said = run(*words, code=2, XDG_CACHE_HOME=tmp_path, **ELSEWHERE)
    assert "C compiler" in said.strip().splitlines()[-1]
    assert "Traceback" not in said


@pytest.mark.parametrize(
    "compiler, said",
    [("'x", "No closing quotation"), ("false", "false ended with exit code 1")],
)
def test_a_compiler_that_is_none_is_named(compiler, said, tmp_path):
    environment = {"XDG_CACHE_HOME": tmp_path, "CC": compiler}
    printed = run("-m", "emulated_gpu", ROOT / "06_sgd" / "train.py", code=2, **environment)
    (line,) = printed.strip().splitlines()
    assert line.startswith("emulated-gpu: ") and said in line


def test_stages_are_measured_on_a_cpu(tmp_path):
    words = "-m shared ladder 06 --preset tiny --max-steps 4 --out".split()
    assert "06_sgd/train" in run(*words, tmp_path, **ELSEWHERE)


def test_the_page_is_made_from_stored_records(tmp_path):
    run("-m", "shared", "report", "--out", tmp_path, **ELSEWHERE)
    page = (tmp_path / "index.html").read_text()
    for record in stored.predictions().values():
        assert f"{record['train']['device_peak_gb']:.2f} GB" in page
