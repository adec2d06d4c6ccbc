"""Promise: scripts and their parents are found by docstrings, and records have all fields."""

import ast
import importlib
import pkgutil

import pytest
from conftest import NAMES, PLAIN, TEXT

from shared.lab.predict import cases
from shared.lab.records import scripts
from shared.run.cli import Parser
from shared.run.errors import UserError


def test_the_scripts_of_this_repository():
    assert len(NAMES) == len(PLAIN) == 10 and TEXT == ["11_llm/before", "11_llm/train"]
    for chain in (NAMES, PLAIN):
        assert [scripts.get(name).parent for name in chain] == [None, *chain[:-1]]
    assert [scripts.get(name).parent for name in TEXT] == [None, "11_llm/before"]
    assert set(scripts.every()) >= {*NAMES, *PLAIN, *TEXT}
    with pytest.raises(UserError, match="there is no script 06_sgd; 06_sgd/train is the name"):
        scripts.get("06_sgd")


def test_select():
    four = ["01_baseline/train", "02_mixed_precision/train", "03_bf16/train", "08_fsdp/train"]
    for words in (["01-03,08"], ["08", "01,02-3"]):
        parser = Parser()  # as the ladder and the predictor have it
        scripts.add_stages(parser)
        assert scripts.selected(parser.parse_args(words)) == four
    assert scripts.selected(parser.parse_args([])) is None
    assert scripts.select(["03", "01-02", "08_fsdp/"], "stage") == four
    assert scripts.select(["11"], "stage") == TEXT
    assert scripts.select(["06_sgd/plain.py"], "stage") == ["06_sgd/plain"]
    for wrong in ("00", "3-2", "01-99"):
        with pytest.raises(UserError, match=f"^stage {wrong}: .* there are 01 to 11$"):
            scripts.select([wrong], "stage")
    for wrong in ("", "1-", "a", "1,,2", "06_sgd/kahan"):
        with pytest.raises(UserError, match="there is no such script; write numbers and ranges"):
            scripts.select([wrong], "stage")


@pytest.mark.parametrize("group", ["variants", "long_context", "scale", "lost_updates"])
def test_edited_scripts_name_functions_that_are_there(group):
    """A run of all would tell, too, and takes an hour."""
    for case in cases.of(group):
        script = case.changed_script
        tree = ast.parse(script.source)
        modules = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module.startswith("shared"):
                folder = importlib.import_module(node.module)
                inside = {m.name for m in pkgutil.iter_modules(getattr(folder, "__path__", ()))}
                for name in {alias.name for alias in node.names} & inside:
                    modules[name] = importlib.import_module(f"{node.module}.{name}")
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                module = modules.get(node.value.id)
                found = module is None or hasattr(module, node.attr)
                assert found, f"{case.title} of {group}: {node.value.id} has no {node.attr}"
