"""Promise: stages import the heart alone, the lab stands on it, and there is never more of it."""

import graphlib
import re
from pathlib import Path

import pytest
from conftest import ROOT
from helpers import gauge
from helpers.house import closure, imported

from shared.lab.records import scripts

HEART = {  # the files and folders of shared/, each with those that it may import
    "memory": (),
    "run": ("memory",),
    "metrics": ("memory", "run"),
    "images": ("run", "metrics"),
    "text": ("run", "metrics", "images"),  # captions are of images
}
IN_LAB = {  # the folders of shared/lab/, each with those that it may import besides the heart
    "records": (),
    "predict": ("records", "emulator"),
    "ladder": ("records", "emulator", "predict"),
    "grading": ("records", "emulator", "predict"),
    "game": ("records", "emulator", "predict", "grading"),
    "evidence": ("records", "emulator", "proof", "predict", "ladder", "grading", "game"),
    "lessons": ("records", "emulator", "proof", "predict", "ladder", "evidence", "grading", "game"),
    "report": ("records", "emulator", "predict", "lessons"),
}
FOR_STAGES = ("images", "text", "metrics", "run.errors")
# Modules of the emulator that others may use, and a function of the package itself.
PACKAGES = {"emulated_gpu": "emulator", "proof": "proof"}  # of shared/emulator
PUBLIC = {
    "build",
    "cards",
    "launch",
    "process",
    "imports",
    "operands",
    "pytest_plugin",
    "run",
    "why",
}


def house(name):
    """Return the part of the house that a module is in, such as "run", "lab.predict"."""
    parts = name.split(".")
    if parts[0] in PACKAGES:
        return PACKAGES[parts[0]]
    return ".".join(parts[1:3]) if parts[1] == "lab" else parts[1]


def modules(folder):
    """Return {module: file} of the Python files in a folder."""
    files = sorted((ROOT / folder).glob("**/*.py"))
    names = (".".join(file.relative_to(ROOT).with_suffix("").parts) for file in files)
    return {name.removesuffix(".__init__"): file for name, file in zip(names, files)}


def allowed(part):
    if part.startswith("lab."):
        name = part.removeprefix("lab.")
        beside = {x if x in PACKAGES.values() else f"lab.{x}" for x in IN_LAB[name]}
        return {part, *HEART, *beside}
    return {part, *HEART[part]}


SHARED = {
    name: file
    for name, file in modules("shared").items()
    if name not in ("shared", "shared.lab", "shared.__main__")
    and not name.startswith("shared.emulator")
}


def test_nothing_imports_upward():
    wrong = [
        f"{module} imports {name}"
        for module, file in SHARED.items()
        for name in imported(file)
        if name != "shared.lab.EMULATOR" and house(name) not in allowed(house(module))
    ]
    assert not wrong, "\n".join(wrong)
    assert imported(SHARED["shared.lab.predict.stage"])  # something was parsed


def test_no_circle():
    """CycleError names the modules."""
    parts = {
        a: {b if b in SHARED else b.rpartition(".")[0] for b in imported(file)}
        for a, file in SHARED.items()
    }
    tuple(graphlib.TopologicalSorter(parts).static_order())


def test_no_circle_in_c():
    """A file uses another if it names a function that the other defines."""
    folder = ROOT / "shared/emulator/emulated_gpu/c"
    no_code = re.compile(r'//.*|"[^"\n]*"')
    files = {file.name: no_code.sub("", file.read_text()) for file in folder.glob("**/*.c")}
    definition = re.compile(r"^(?!static|typedef)\w[\w ]*[ *](\w+)\([^;{}]*\) \{", re.M)
    of = {name: file for file, code in files.items() for name in definition.findall(code)}
    uses = {a: {of[x] for x in re.findall(r"\w+", code) if x in of} for a, code in files.items()}
    assert "clock.c" in uses["cublas.c"]
    tuple(graphlib.TopologicalSorter({a: b - {a} for a, b in uses.items()}).static_order())


@pytest.mark.parametrize("name", scripts.every())
def test_a_stage_reaches_neither_lab_nor_emulator(name):
    reached = {str(file.relative_to(ROOT)) for file in closure(scripts.get(name).path)}
    assert "shared/metrics.py" in reached
    assert not {file for file in reached if file.startswith(("shared/lab", "shared/emulator"))}
    roads = {file for file in reached if file.startswith("shared/text/roads")}
    assert scripts.get(name).side_road or not roads


def test_scripts_import_only_what_stages_use():
    for file in sorted(ROOT.glob(f"{scripts.FOLDER}/*.py")):
        names = imported(file)
        inside = {".".join(name.split(".")[1:3]) for name in names if house(name) == "run"}
        parts = {house(name) for name in names} - {"run"} | inside
        few = ("classify.py", "generate.py")
        beside = ("run.cli", "lab.records") if file.name in few else ()
        assert parts <= {*FOR_STAGES, *beside}, file
        # This file is to be copied, so it needs nothing of the repository.
        assert bool(parts) == (file.name != "own_script.py"), file
        assert not {"images", "text"} <= parts, file


def emulator_interface_breaches(text):
    """Return the names of the emulator that Python code uses, but that are not public."""
    modules = re.findall(r"\bemulated_gpu\.(\w+)", text)
    for names in re.findall(r"\bfrom emulated_gpu import (\w+(?:, \w+)*)", text):
        modules += names.split(", ")
    # Past Python: the functions of the preloaded library, and the module that Python starts with.
    beside = re.findall(r"\.emulator_\w+|\bfrom sitecustomize\b|\bimport sitecustomize\b", text)
    return {*modules} - PUBLIC | {*beside}


def test_others_use_the_emulator_through_its_interface():
    """Also the programs in strings, which tests and predictions run in other processes."""
    breaches = {}
    folders = "shared/lab", "tests", "shared/emulator/proof"
    for file in [file for folder in folders for file in ROOT.glob(f"{folder}/**/*.py")]:
        if file.name != Path(__file__).name:
            breaches[str(file.relative_to(ROOT))] = emulator_interface_breaches(file.read_text())
    assert not {file: names for file, names in breaches.items() if names}
    assert emulator_interface_breaches("from emulated_gpu import cards, inside")
    assert emulator_interface_breaches("ctypes.CDLL(None).emulator_end()")


def test_the_emulator_imports_nothing_of_this_repository():
    for name, file in modules("shared/emulator").items():
        assert not [x for x in imported(file) if x.split(".")[0] == "shared"], name
        # Nor does the package need what proves it, or the code in strings the repository.
        needs = re.findall(r"^\s*(?:from|import) (\w+)", file.read_text(), re.M)
        assert "proof" not in needs or ".emulated_gpu" not in name, name
        assert "shared" not in needs, name


def test_there_is_no_more_than_before():
    most, counted = gauge.limits(), gauge.counted()
    assert most.keys() == counted.keys()
    grown = [f"{x}: {counted[x]:,}, at most {most[x]:,}" for x in most if counted[x] > most[x]]
    assert not grown, "more than .ci/house.toml allows; take something away: " + "; ".join(grown)
