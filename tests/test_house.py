"""Promise: stages import the heart alone, the lab stands on it, and the emulator stands alone."""

import graphlib
import re

import pytest
from conftest import ROOT
from house import closure, imported

from shared.lab.records import scripts

HEART = {  # the files and folders of shared/, each with those that it may import
    "memory": (),
    "cli": ("memory", "errors", "devices"),
    "loading": ("errors",),
    "errors": (),
    "devices": ("errors",),
    "record": (),
    "saving": ("errors", "record"),
    "metrics": ("memory", "loading", "record", "saving"),
    **dict.fromkeys(("images", "text"), ("cli", "errors", "loading", "metrics")),
}
IN_LAB = {  # the folders of shared/lab/, each with those that it may import besides the heart
    "records": (),
    "predict": ("records", "emulator"),
    "ladder": ("records", "emulator", "predict"),
    "evidence": ("records", "emulator", "predict", "ladder"),
    "lessons": ("records", "emulator", "predict", "evidence"),
    "report": ("records", "emulator", "predict", "lessons"),
}
FOR_STAGES = ("images", "text", "metrics", "errors")
PUBLIC = {"build", "cards", "launch"}  # modules of the emulator that the lab may use


def house(name):
    """Return the part of the house that a module is in, such as "cli", "lab.predict"."""
    parts = name.split(".")
    if parts[0] == "emulated_gpu":
        return "emulator"
    return ".".join(parts[1:3]) if parts[1] == "lab" else parts[1]


def modules(folder):
    """Return {module: file} of the Python files in a folder."""
    files = sorted((ROOT / folder).glob("**/*.py"))
    names = (".".join(file.relative_to(ROOT).with_suffix("").parts) for file in files)
    return {name.removesuffix(".__init__"): file for name, file in zip(names, files)}


def allowed(part):
    if part.startswith("lab."):
        name = part.removeprefix("lab.")
        beside = {x if x == "emulator" else f"lab.{x}" for x in IN_LAB[name]}
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
    """CycleError tells which."""
    parts = {
        a: {b if b in SHARED else b.rpartition(".")[0] for b in imported(file)}
        for a, file in SHARED.items()
    }
    tuple(graphlib.TopologicalSorter(parts).static_order())


@pytest.mark.parametrize("name", scripts.every())
def test_a_stage_reaches_neither_lab_nor_emulator(name):
    reached = {str(file.relative_to(ROOT)) for file in closure(scripts.get(name).path)}
    assert "shared/metrics.py" in reached
    assert not {file for file in reached if file.startswith(("shared/lab", "shared/emulator"))}


def test_scripts_import_only_what_stages_use():
    for file in sorted(ROOT.glob(f"{scripts.FOLDER}/*.py")):
        parts = {house(name) for name in imported(file)}
        few = ("classify.py", "generate.py", "one_by_one.py")
        beside = ("cli", "lab.records") if file.name in few else ()
        assert parts and parts <= {*FOR_STAGES, *beside}, file
        assert not {"images", "text"} <= parts, file


def test_the_emulator_imports_nothing_of_this_repository():
    for name, file in modules("shared/emulator").items():
        assert not [x for x in imported(file) if x.split(".")[0] == "shared"], name
        assert "shared" not in re.findall(r"^\s*(?:from|import) (\w+)", file.read_text(), re.M)
