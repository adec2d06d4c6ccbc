"""Check a stage that a learner has written, in any folder, beside the repository's own."""

import ast
import difflib
import functools
import os
import re
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple
from unittest import mock

from shared.cli import Parser, UserError
from shared.lab.predict.jobs import Wanted, run_jobs
from shared.lab.predict.stage import predict
from shared.lab.records import scripts
from shared.lab.records.running import forks, run_script
from shared.lab.records.views import size

OPTIONS = "--preset tiny --max-steps 4 --devices 1".split()
# The same sums in another order change a loss by 3e-4 of it at most, a missing zero_grad() by 8e-4.
ROUNDING, SLACK = 4e-4, 5e-3  # of a loss, and of a peak
ALONE = {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
HINTS = {
    "gradients": "is zero_grad() missing, or only after the forward pass?",
    "optimizer states": "another optimizer, such as Adam, or precision?",
    "activations": "micro-batches, precision, or a graph that is kept?",
    "gathered": "is fully_shard called for each block first?",
    "recomputed": "is each block checkpointed, or the whole model?",
}


class Parts(NamedTuple):
    """The parts of a script."""

    functions: list  # names
    constants: dict  # {name: code of its value}
    docstring: str
    lines: list  # below the docstring


def parts(path):
    """Return the Parts of a script.

    Raises:
        UserError: it is not Python.
    """
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError) as error:
        where = f"{path.name}, line {getattr(error, 'lineno', None) or 1}"
        raise UserError(f"{where}: {type(error).__name__}: {error.args[0]}") from None
    functions = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    constants = {}
    for node in tree.body:
        if isinstance(node, ast.Assign):
            constants[ast.unparse(node.targets[0])] = ast.unparse(node.value)
        elif isinstance(node, ast.AnnAssign) and node.value:
            constants[ast.unparse(node.target)] = ast.unparse(node.value)
    docstring = ast.get_docstring(tree)
    start = 0 if docstring is None else tree.body[0].end_lineno
    return Parts(functions, constants, docstring or "", path.read_text().splitlines()[start:])


def recognize(file, stage):
    """Return the Script in a file, and that of the stage it is an attempt at."""
    script = parts(file)
    number = (stage or stage_in(file.stem, script.docstring)).zfill(2)
    chain = scripts.plain() if "make_device" in script.functions else scripts.ladder()
    stages = {name[:2]: scripts.get(name) for name in chain[1:]}
    if number not in stages or file.suffix != ".py":
        right = f"give a .py file, and a stage from {min(stages)} to {max(stages)}: --stage 06"
        raise UserError(f"{file.name} as stage {number}: {right}")
    name = str(file.absolute().with_suffix(""))
    return scripts.Script(name, "", "", stages[number].parent, False), stages[number]


def stage_in(name, docstring):
    """Return the number of a stage in the name of a file or in a docstring, "??" without one."""
    two_digits = re.findall(r"(?<!\d)\d\d(?!\d)", name)
    in_docstring = re.findall(r"\AStage (\d\d)", docstring)
    return [*two_digits, *re.findall(r"\d+", name), *in_docstring, "??"][0]


def form(mine, own):
    """Compare functions and constants; return whether they are right, and a line, as all below."""
    written, reference = parts(mine.path), parts(own.path)
    reference.constants.pop("SCALER", None)  # it may be made elsewhere
    names = [*written.functions, *written.constants]
    missing = [name for name in reference.functions if name not in names]
    missing += [name for name in reference.constants if name not in written.constants]
    if missing:
        return False, f"functions and constants: no {', no '.join(missing)}"
    texts = ["functions and constants are there"]
    for name, value in reference.constants.items():
        if written.constants[name] != value:
            texts.append(f"{name} {written.constants[name]} instead of {value}")
    return True, ", but ".join(texts)


def diff(mine, own):
    """Compare the lines changed from the stage before; docstrings and names do not count."""
    before = parts(scripts.get(own.parent).path).lines
    reference, written = parts(own.path).lines, parts(mine.path).lines
    # What only one of the two names is the writer's choice, and is blanked out.
    choice = names_in(reference) ^ names_in(written)
    expected = changed(before, reference)
    actual = changed(blanked(before, choice), blanked(written, choice))
    limit = 2 * expected + 8
    text = f"{actual} lines changed, {expected} in {own.name}, at most {limit}, from {own.parent}"
    return 0 < actual <= limit, text


def names_in(lines):
    """Return the set of names and words in lines of code."""
    return {*re.findall(r"[^\W\d]\w*", " ".join(lines))}


def blanked(lines, names):
    """Return lines of code with "_" in place of some names."""
    if not names:
        return lines
    pattern = rf"\b({'|'.join(names)})\b"
    return [re.sub(pattern, "_", line) for line in lines]


def changed(before, after):
    """Return the number of lines removed or added between two lists of lines."""
    return sum(line[0] in "+-" for line in difflib.ndiff(before, after))


def losses(mine, own, _):
    """Compare the losses and precisions of two records."""
    texts = ["{first_loss:.4f} to {last_loss:.4f} in {precision}".format(**r) for r in (mine, own)]
    alike = [abs(mine[x] - own[x]) <= ROUNDING * own[x] for x in ("first_loss", "last_loss")]
    if all(alike) and mine["precision"] == own["precision"]:
        return True, f"losses agree, {texts[0]}"
    hint = "precision, optimizer, step(), learning rate, schedule, zero_grad(), or batch size?"
    if not alike[0]:
        hint = "is each loss, in fp32, its share of the batch's, and is there one step per batch?"
    elif mine["last_loss"] == mine["first_loss"]:
        hint = "nothing is learned; does the optimizer hold the model's own parameters?"
    return False, f"losses {texts[0]} instead of {texts[1]}: {hint}"


def uneven(mine, own):
    """Compare the losses where the last micro-batch is smaller than the others."""
    right, text = losses(
        *run_jobs([(train_uneven, script) for script in (mine, own)], emulated=False), None
    )
    return right, f"with a smaller last micro-batch, {text}"


def train_uneven(script):
    """Train a script with batches that its micro-batches do not divide; return its record."""
    module = script.load()
    module.BATCH_SIZE += module.MICRO_BATCH_SIZE // 2
    return module.main(OPTIONS)


def peak(mine, own, before, phase="train"):
    """Compare the peaks of a phase, and name the categories that are larger than in `own`."""
    actual, expected, earlier = (r[phase]["device_peak_gb"] for r in (mine, own, before))
    text = f"loading peak {size(actual)}" if phase == "load" else f"peak {size(actual)}"
    if mine["world_size"] > 1:
        text += f" on {mine['device']}"
    beside = f"{own['script']} {size(expected)}, {before['script']} {size(earlier)}"
    if actual <= (1 + SLACK) * expected:
        return True, f"{text} as expected, {beside}"
    texts = [f"{text}, {beside}"]
    held, reference = mine[phase]["breakdown_gb"], own[phase]["breakdown_gb"]
    for name in sorted(held, key=lambda name: reference.get(name, 0) / held[name]):
        more = held[name] - reference.get(name, 0)
        if more <= SLACK * expected:
            continue
        much = "new"
        if name in reference:
            much = f"{size(more)} more, {held[name] / reference[name]:.1f} times"
        hint = HINTS.get(name, "precision, batch size, or a second copy?")
        texts.append(f"{name} {size(held[name])}, {much}: {hint}")
    return False, "; ".join(texts)


def record(script):
    """Train a script for a few updates, and return its record."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log.txt"
        result, last_line = run_script(script.name, OPTIONS, log, context=forks())
        in_script = rf'{re.escape(script.path.name)}", (line \d+)'  # of a traceback
        lines = re.findall(in_script, log.read_text(errors="replace"))
    if not result:
        where = lines[-1] if lines else "meter.test() did not run"
        raise UserError(f"{script.path.name}, {where}: {last_line}")
    return result


record_of_own = functools.cache(record)  # of the repository's own scripts


def emulate(name, options, script):
    with mock.patch.dict(scripts.every(), {name: script}):
        return predict(name, options)


def check(mine, own):
    """Yield whether each part of a script is right, and a line about it."""
    yield form(mine, own)
    yield diff(mine, own)
    trio = mine, own, scripts.get(own.parent)
    with mock.patch.dict(os.environ, ALONE), ThreadPoolExecutor(2) as pool:
        forks()  # once, in this thread
        futures = [pool.submit(record, mine)]
        futures += [pool.submit(record_of_own, script) for script in trio[1:]]
        records = [future.result() for future in futures]
    yield losses(*records)
    yield peak(*records)
    yield peak(*records, "load")
    if "MICRO_BATCH_SIZE" in parts(own.path).constants.keys() - parts(trio[2].path).constants:
        yield uneven(mine, own)
    if own.load().DEVICES > 1:
        asked = Wanted("tiny")
        try:
            yield peak(*run_jobs([(emulate, script.name, asked, script) for script in trio]))
        except UserError as error:  # such as tensors on different devices
            yield False, str(error)


def main(argv=None):
    parser = Parser(description=__doc__)
    parser.add_argument("file", type=Path, help="the script, such as my_06.py")
    number = "from 02 to 10 (default: the number in the file's name, or in its docstring)"
    parser.add_argument("--stage", metavar="NN", help=number)
    args = parser.parse_args(argv)
    mine, own = recognize(args.file, args.stage)
    print(f"{args.file.name} is an attempt at {own.name}.py, {own.title}: {own.idea}")
    results = []  # (right, the text up to its first comma)
    for right, text in check(mine, own):
        print(f"{'right' if right else 'wrong'}: {text}", flush=True)
        results.append((right, text.partition(",")[0]))
        if not results[0][0]:
            break  # what follows needs the functions
    number, wrong = own.name[:2], [text for right, text in results if not right]
    if wrong:
        print(f"this is not stage {number} yet: {len(wrong)} of {len(results)} checks failed")
        return 1
    print(f"this is stage {number}: {', '.join(text for _, text in results[1:4])}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
