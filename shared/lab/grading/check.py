"""Check a stage that a learner has written, in any folder, beside the repository's own."""

import functools
import os
import re
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest import mock

from shared.lab.grading import sentences
from shared.lab.grading.aspects import Row, equal, losses, peak, wrong
from shared.lab.grading.source import num_changed_but_names, parts
from shared.lab.predict.jobs import Wanted, run_jobs
from shared.lab.predict.stage import predict
from shared.lab.records import scripts
from shared.lab.records.running import forks, run_script
from shared.run.cli import Parser
from shared.run.errors import UserError

OPTIONS = "--preset tiny --max-steps 4 --devices 1".split()
# The environment of runs on the CPU: no GPU, the same sums each time, no file in the folder of the
# learner.
ALONE = {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}


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
    mine, lines = num_changed_but_names(*(parts(script.path).lines for script in sources))
    most = 2 * lines + 8  # the same code can be written in more lines
    expected = {"lines": lines, "most": most}
    expected |= {"script": reference.name, "parent": reference.parent}
    return Row("lines", mine, expected, 0 < mine <= most)


def uneven_losses(attempt, reference):
    """Compare the trainings of two scripts with a smaller last micro-batch.

    Only there does a wrong share of a micro-batch in the batch's loss show.
    """
    jobs = [(train_uneven, script) for script in (attempt, reference)]
    return losses(*run_jobs(jobs, emulated=False), "with a smaller last micro-batch")


def train_uneven(script):
    """Train a script with batches that its micro-batches do not divide; return its record."""
    module = script.load()
    module.BATCH_SIZE += module.MICRO_BATCH_SIZE // 2  # so the last micro-batch is half as large
    return module.main(OPTIONS)


def measured(script):
    """Train a script for a few updates in a process of its own; return its record.

    Raises:
        UserError: it fails; the message names its last line in the traceback.
    """
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log.txt"
        record, last_line = run_script(script.name, OPTIONS, log, context=forks())
        in_script = rf'{re.escape(script.path.name)}", (line \d+)'  # of a traceback
        lines = re.findall(in_script, log.read_text(errors="replace"))
    if not record:
        # The innermost line of the learner's own script.
        where = lines[-1] if lines else "meter.test() did not run"
        raise UserError(f"{script.path.name}, {where}: {last_line}")
    return record


# For the repository's own scripts, which do not change while this process runs.
measured_once = functools.cache(measured)


def check(attempt, reference):
    """Yield the judge's rows of a script, as they are made."""
    yield form(attempt, reference)
    yield diff(attempt, reference)
    parent = scripts.get(reference.parent)
    with mock.patch.dict(os.environ, ALONE), ThreadPoolExecutor(2) as pool:
        forks()  # here, since only the main thread can prepare the process for Ctrl-C
        futures = [pool.submit(measured, attempt)]
        futures += [pool.submit(measured_once, script) for script in (reference, parent)]
        records = [future.result() for future in futures]
    yield losses(*records[:2])
    yield peak(*records)
    yield peak(*records, "load")
    new_constants = parts(reference.path).constants.keys() - parts(parent.path).constants
    # Only the stage that begins with micro-batches is about their shares of a loss.
    if "MICRO_BATCH_SIZE" in new_constants:
        yield uneven_losses(attempt, reference)
    if reference.load().DEVICES > 1:
        scripts_to_run = (attempt, reference, parent)
        jobs = [(predict, script, Wanted("tiny")) for script in scripts_to_run]
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
