"""Promise: one idea per stage, the diff is the lesson, and each file can be read at one sitting."""

import ast
import difflib
import importlib.util
import re
import statistics

import pytest
from conftest import NAMES, PLAIN, ROADS, ROOT, TEXT

from shared.lab.records import scripts
from shared.lab.records.markdown import changed

FROM_PARENTS = [(scripts.get(name).parent, name) for name in ROADS]
CHAINS = [*zip(NAMES, NAMES[1:])], [*zip(PLAIN, PLAIN[1:])], FROM_PARENTS
PAIRS = sum(CHAINS, [])
MOST = 12  # lines that change from a script to the next; a replaced one counts once
# By hand, so that a longer diff is a decision: sharding needs a function and a strategy, the others
# write their algorithm out.
MORE = {"08_fsdp/train": 19, "08_fsdp/plain": 20, "03_bf16/kahan": 17, "06_sgd/apollo": 13}
MORE |= {"06_sgd/adam_in_backward": 14, "05_grad_accum/cuda_graphs": 38}
MORE |= {"08_fsdp/muon": 27, "11_llm/grpo": 27}
# PyTorch has no function that does it: these write out how a model, or a text, is divided.
MORE |= {"08_fsdp/pipeline": 114, "11_llm/context_parallel": 49}
LONG = {"08_fsdp/pipeline": 205, "11_llm/context_parallel": 140}  # lines; of the others at most 130

CONDITIONS = (ast.If, ast.IfExp, ast.While, ast.Assert)
NAMES_A_STAGE = re.compile(r"\d\d(_\w*)?(/\w*)?")


@pytest.mark.parametrize("pairs, most", [*zip(CHAINS, (4, 7, 5))])
def test_half_of_the_diffs_are_at_most_so_many_lines(pairs, most):
    found = statistics.median(changed(*pair) for pair in pairs)
    longest = {after: n for before, after in pairs if (n := changed(before, after)) > most}
    assert found <= most, f"half of the diffs have over {found} lines; more than {most}: {longest}"


@pytest.mark.parametrize("before, after", PAIRS)
def test_diff_is_small(before, after):
    found, most = changed(before, after), MORE.get(after, MOST)
    why = (
        "one of the two has changed without the other" if after in ROADS else "a stage is one idea"
    )
    wrong = f"{after} differs from {before} in {found} lines, and may in 1 to {most}: {why}"
    assert 0 < found <= most, wrong


@pytest.mark.parametrize("name", scripts.every())
def test_no_script_is_imported_in_place_of_a_package(name):
    """Python looks for packages in the folder of the script that it runs, too."""
    assert importlib.util.find_spec(scripts.get(name).file) is None


@pytest.mark.parametrize("before, after", PAIRS)
def test_nothing_changes_but_for_a_reason(before, after):
    delta = [*difflib.ndiff(scripts.get(before).code, scripts.get(after).code)]
    removed, added = ([d[2:] for d in delta if d.startswith(sign)] for sign in ("- ", "+ "))

    def packed(text):
        return "".join(text.split())

    # Re-indented under a new loop or context, by exactly one level, is a reason; anything else
    # about spaces is not.
    for old in removed:
        for new in added:
            if packed(old) == packed(new):
                moved = new.lstrip() == old.lstrip() and abs(len(new) - len(old)) == 4
                what = "a line has another place" if old == new else "only spaces differ"
                assert moved, f"{after} and {before}: {what}: {old!r}, {new!r}"
    empty = f"{after}: an empty line of {before} is gone"
    assert not any(packed(line) == "" for line in removed), empty


@pytest.mark.parametrize("name", NAMES)
def test_with_fabric_and_without_are_the_same_script(name):
    fabric = scripts.get(name)
    (plain,) = map(scripts.get, scripts.plain([name]))
    assert (plain.idea, plain.title) == (fabric.idea, f"{fabric.title}, in plain PyTorch")
    code = ast.unparse(ast.parse(plain.path.read_text()))  # without its comments
    assert "abric" not in code and "lightning" not in code, f"{plain.name} uses Fabric"
    found = changed(plain.name, name)
    assert found <= 40, f"{plain.name} differs from {name} in {found} lines, and may in 40"


@pytest.mark.parametrize("name", NAMES + PLAIN + TEXT + ROADS)
def test_length_and_form(name):
    script = scripts.get(name)
    text = script.path.read_text()
    long = LONG.get(name, 130)
    assert len(script.lines) <= long, f"{name}: {len(script.lines)} lines, and may have {long}"
    parent = r"( from \d\d_\w+/\w+\.py)?" if name in TEXT else ""
    first = r"Side road from \d\d_\w+/\w+\.py" if name in ROADS else f"Stage {name[:2]}{parent}"
    assert re.match(rf'"""{first}, \w', text), f"{name}: its docstring begins otherwise: {first}"
    functions = re.findall(r"^def (\w+)", text, re.MULTILINE)
    make = "make_device" if name in PLAIN or script.parent in PLAIN else "make_fabric"
    usual = [make, "build", "train_step", "main"]
    found = [function for function in functions if function in usual]
    assert found == usual, f"{name}: the functions are {found}, and should be {usual}"
    further = {*functions} - {*usual, "parallelize"}
    most = 4 if name in MORE else 1  # a technique may need one of its own
    assert len(further) <= (most if name in ROADS else 0), f"{name}: further functions: {further}"


def python_files(*folders):
    return sorted(file for folder in folders for file in ROOT.glob(f"{folder}/**/*.py"))


def test_files_and_lines_are_short():
    found = []
    for file in python_files("shared", "tests", scripts.FOLDER):
        lines, where = file.read_text().splitlines(), file.relative_to(ROOT)
        found += [f"{where}: {len(lines)} lines"] if len(lines) > 300 else []
        found += [f"{where}:{n}: {len(x)} columns" for n, x in enumerate(lines, 1) if len(x) > 100]
    assert not found, "\n".join(found)


def test_no_file_of_weights_runs_what_it_brings():
    found = []
    for file in python_files("shared", scripts.FOLDER):
        text = file.read_text()
        found += re.findall(r"torch\.load\((.*)", text)
        if file.name in ("jobs.py", "forks.py"):  # messages between this repository's processes
            continue
        unsafe = r"weights_only=False|\b(pickle|joblib|dill)\.load|load_pickle|allow_pickle=True"
        assert not re.search(unsafe, text), file
    assert len(found) > 40 and all("weights_only=True" in call for call in found)


def conditions(tree):
    """Yield the conditions of branches."""
    for node in ast.walk(tree):
        if isinstance(node, CONDITIONS):
            yield node.test
        elif isinstance(node, ast.comprehension):
            yield from node.ifs
        elif isinstance(node, ast.match_case):
            yield node.pattern


def test_shared_has_no_branch_on_the_stage():
    for file in python_files("shared"):
        text = file.read_text()
        assert not re.search(r"\bif\b.*\bstage\b.*[\"']\d\d", text), file
        for condition in conditions(ast.parse(text)):
            parts = [part.value for part in ast.walk(condition) if isinstance(part, ast.Constant)]
            named = [x for x in parts if isinstance(x, str) and NAMES_A_STAGE.fullmatch(x)]
            assert not named, f"{file.relative_to(ROOT)}:{condition.lineno}: {named}"
