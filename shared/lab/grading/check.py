"""Check a stage that a learner has written, in any folder, beside the repository's own."""

import functools
import re
from pathlib import Path

import torch

from shared.lab.grading import sentences
from shared.lab.grading.aspects import Row, equal, losses, peak, wrong
from shared.lab.grading.source import line_of, num_changed_but_names, parts
from shared.lab.predict.jobs import Wanted, run_jobs
from shared.lab.predict.stage import predict
from shared.lab.records import scripts
from shared.run.cli import Parser
from shared.run.errors import UserError

OPTIONS = "--preset tiny --max-steps 4 --devices 1".split()


def recognize(file, stage):
    """Return the Script of a file, and the Script of the stage that it attempts.

    Raises:
        UserError: there is no such stage, or the file is not Python.
    """
    script = parts(file)
    number = (stage or stage_in(file.stem, script.docstring)).zfill(2)
    # Only plain.py has it: in train.py Fabric chooses the device.
    chain = scripts.plain() if "make_device" in script.functions else scripts.ladder()
    stages = {name[:2]: scripts.get(name) for name in chain[1:]}  # 01 has no stage before it
    if number not in stages or file.suffix != ".py":
        right = f"give a .py file, and a stage from {min(stages)} to {max(stages)}: --stage 06"
        raise UserError(f"{file.name} as stage {number}: {right}")
    reference = stages[number]
    return scripts.Script.of_file(file, reference.parent), reference


def stage_in(name, docstring):
    """Return the number of a stage in the name of a file or in a docstring, "??" without either."""
    # First, as in try2_of_06.py.
    two_digits = re.findall(r"(?<!\d)\d\d(?!\d)", name)
    in_docstring = re.findall(r"\AStage (\d\d)", docstring)
    return [*two_digits, *re.findall(r"\d+", name), *in_docstring, "??"][0]


def form(attempt, reference):
    """Compare the functions and the constants of two scripts."""
    written = parts(attempt.path)
    expected = parts(reference.path)
    # Code that is not in a function or a constant cannot be compared by name; what it does shows
    # in losses and peaks. A gradient scaler need not be a constant.
    expected.constants.pop("SCALER", None)
    names = [*written.functions, *written.constants]
    missing = [name for name in expected.functions if name not in names]
    missing += [name for name in expected.constants if name not in written.constants]
    values = [
        equal("constant", written.constants[name], value, name)
        for name, value in expected.constants.items()
        if name in written.constants
    ]
    return Row("names", missing, [], not missing, reasons=wrong(values))


def diff(attempt, reference):
    """Count the lines changed from the stage before; docstrings and names do not count."""
    sources = (scripts.get(reference.parent), attempt, reference)
    changed, lines = num_changed_but_names(*(parts(script.path).lines for script in sources))
    most = 2 * lines + 8  # the same code can be written in more lines
    expected = {"lines": lines, "most": most}
    expected |= {"script": reference.name, "parent": reference.parent}
    return Row("lines", changed, expected, 0 < changed <= most)


def uneven_losses(attempt, reference):
    """Compare the trainings of two scripts with a smaller last micro-batch.

    Only there does a wrong share of a micro-batch in the batch's loss show.
    """
    jobs = [(train, script, True) for script in (attempt, reference)]
    return losses(*run_jobs(jobs, emulated=False), "with a smaller last micro-batch")


def train(script, is_uneven=False):
    """Train a script for a few updates, without a GPU; return its record.

    With is_uneven, its micro-batches do not divide a batch: the last is half as large.

    Raises:
        UserError: it fails; the message names its last line in the traceback.
    """
    torch.set_num_threads(1)  # the same sums each time
    try:
        module = script.load()
        if is_uneven:
            module.BATCH_SIZE += module.MICRO_BATCH_SIZE // 2
        record = module.main(OPTIONS)
    except Exception as error:
        where = f"{script.path.name}, line {line_of(error, script)}"
        raise UserError(f"{where}: {type(error).__name__}: {error}") from None
    if not isinstance(record, dict):
        raise UserError(f"{script.path.name}: main() has to return what meter.test() returns")
    return record


def trained(*scripts_to_run):
    """Return the records of scripts that train, each in a process of its own."""
    return run_jobs([(train, script) for script in scripts_to_run], emulated=False)


# For the repository's own scripts, which do not change while this process runs.
trained_once = functools.cache(trained)


def check(attempt, reference):
    """Yield the rows of aspects.py for a script, as they are made."""
    yield form(attempt, reference)
    yield diff(attempt, reference)
    parent = scripts.get(reference.parent)
    records = trained(attempt) + trained_once(reference, parent)
    yield losses(*records[:2])
    yield peak(*records)
    yield peak(*records, "load")
    new_constants = parts(reference.path).constants.keys() - parts(parent.path).constants
    # Only the stage that begins with micro-batches is about their shares of a loss.
    if "MICRO_BATCH_SIZE" in new_constants:
        yield uneven_losses(attempt, reference)
    if reference.load().DEVICES > 1:
        jobs = [(predict, script, Wanted("tiny")) for script in (attempt, reference, parent)]
        try:
            yield peak(*run_jobs(jobs))
        except UserError as error:  # such as tensors on different devices
            yield Row("error", str(error), None, False)


def main(argv=None):
    parser = Parser(description=__doc__)
    parser.add_argument("file", type=Path, help="the script, such as my_06.py")
    number = "from 02 to 10 (default: the number in the file's name, or in its docstring)"
    parser.add_argument("--stage", metavar="NN", help=number)
    args = parser.parse_args(argv)
    attempt, reference = recognize(args.file, args.stage)
    title = f"{reference.name}.py, {reference.title}: {reference.idea}"
    print(f"{args.file.name} is an attempt at {title}")
    rows = []
    for row in check(attempt, reference):
        print(f"{'right' if row.right else 'wrong'}: {sentences.sentence(row)}", flush=True)
        rows.append(row)
        if not rows[0].right:
            break  # the other checks call these functions
    print(sentences.conclusion(reference.name[:2], rows))
    return 1 if wrong(rows) else 0
