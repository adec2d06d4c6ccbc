"""Promise: `python -m shared` runs all commands, from any folder."""

import ast
import subprocess
import sys

import pytest
from conftest import ROOT, run

from shared.__main__ import COMMANDS
from shared.lab.evidence.command import GROUPS

COMMAND = {name: row[1] for rows in COMMANDS.values() for name, row in rows.items()}
MODULES = COMMAND | {n: f"lab.{module}" for n, (_, module) in GROUPS.items() if module}


def test_help_has_a_line_for_each_command():
    lines = run(
        "-W", "error", "-m", "shared", "--help"
    ).splitlines()  # with -W: as a user starts it
    assert {line.split()[0] for line in lines if line.startswith("  ")} == {*COMMAND}
    assert max(map(len, lines)) <= 100


@pytest.mark.parametrize("name", MODULES)
def test_a_command_is_the_main_function_of_a_module(name):
    file = ROOT / "shared" / (MODULES[name].replace(".", "/") + ".py")
    functions = [node for node in ast.parse(file.read_text()).body if hasattr(node, "args")]
    (main,) = (function for function in functions if function.name == "main")
    assert len(main.args.args) == len(main.args.defaults), "it is called without arguments"


def test_groups_of_records_are_listed():
    lines = run("-m", "shared", "records").splitlines()
    assert {line.split()[0] for line in lines if line.startswith("  ")} == {*GROUPS}
    assert "there is no group foo" in run("-m", "shared", "records", "foo", code=2)
    assert "[GROUP ...]" in run("-m", "shared", "records", "predicted", "--help")


def test_from_another_folder(tmp_path):
    assert "there is no command lader" in run(ROOT / "shared", "lader", cwd=tmp_path, code=2)
    said = run(ROOT / "shared", "predict", "42", cwd=tmp_path, code=2)
    assert "predict: stage 42: there is no stage 42" in said


def test_as_many_type_it_and_read_it():
    command = f"{sys.executable} -mshared --help | head -1"
    done = subprocess.run(command, shell=True, cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.startswith("The door") and not done.stderr
