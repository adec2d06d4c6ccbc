"""Promise: `python -m shared` runs all commands, from any folder; old names print the new names."""

import ast

import pytest
from conftest import ROOT, run

from shared.__main__ import COMMANDS

MODULES = {name: row[1] for rows in COMMANDS.values() for name, row in rows.items()}


def test_help_has_a_line_for_each_command():
    lines = run(
        "-W", "error", "-m", "shared", "--help"
    ).splitlines()  # with -W: as a user starts it
    assert {line.split()[0] for line in lines if line.startswith("  ")} == {*MODULES}
    assert max(map(len, lines)) <= 100


@pytest.mark.parametrize("name", MODULES)
def test_a_command_is_the_main_function_of_a_module(name):
    file = ROOT / "shared" / (MODULES[name].replace(".", "/") + ".py")
    functions = [node for node in ast.parse(file.read_text()).body if hasattr(node, "args")]
    (main,) = (function for function in functions if function.name == "main")
    assert len(main.args.args) == len(main.args.defaults), "it is called without arguments"


def test_from_another_folder(tmp_path):
    assert "there is no command lader" in run(ROOT / "shared", "lader", cwd=tmp_path, code=2)
    said = run(ROOT / "shared", "predict", "42", cwd=tmp_path, code=2)
    assert "predict: stage 42: there is no stage 42" in said


@pytest.mark.parametrize(
    "old, now",
    [
        ("shared.predict", "shared predict"),
        ("shared.ladder", "shared ladder"),
        ("shared.lessons.check", "shared check"),
        ("shared.lessons.fit", "shared game"),
        ("shared.evidence.calibrate", "shared calibrate"),
        ("shared.emulator", "emulated_gpu"),
    ],
)
def test_an_old_command_says_what_it_is_called_now(old, now):
    said = run("-W", "error", "-m", old, "06", code=2)  # with -W: as a user starts it
    assert said.strip() == f"python -m {old} is called python -m {now} now"


def test_what_the_ladder_no_longer_does(tmp_path):
    said = run("-m", "shared", "ladder", "06", "--card", "a100", code=2)
    assert "ladder: the ladder measures; python -m shared predict 01-11 --fits CARD" in said
