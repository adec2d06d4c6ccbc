"""Check a stage that a learner has written, in any folder, beside the repository's own."""

import functools
import os
import re
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest import mock

from shared.lab.grading import check_texts
from shared.lab.grading.check_results import Category, Diff, Error, Form, Losses, Peak
from shared.lab.grading.same_training import Training, same_training
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
    values = {
        name: (written.constants[name], value)
        for name, value in expected.constants.items()
        if written.constants.get(name, value) != value
    }
    return Form(tuple(missing), values)


def diff(attempt, reference):
    """Count the lines changed from the stage before; docstrings and names do not count."""
    sources = (scripts.get(reference.parent), attempt, reference)
    lines = [parts(script.path).lines for script in sources]
    return Diff(*num_changed_but_names(*lines), reference.name, reference.parent)


def losses(attempt, reference, uneven=False):
    """Compare the trainings of two records."""
    trainings = map(Training.of_record, (attempt, reference))
    return Losses(same_training(*trainings), uneven)


def uneven_losses(attempt, reference):
    """Compare the trainings of two scripts with a smaller last micro-batch.

    Only there does a wrong share of a micro-batch in the batch's loss show.
    """
    jobs = [(train_uneven, script) for script in (attempt, reference)]
    return losses(*run_jobs(jobs, emulated=False), uneven=True)


def train_uneven(script):
    """Train a script with batches that its micro-batches do not divide; return its record."""
    module = script.load()
    module.BATCH_SIZE += module.MICRO_BATCH_SIZE // 2  # so the last micro-batch is half as large
    return module.main(OPTIONS)


def peak(attempt, reference, parent, phase="train"):
    """Compare the peaks of a phase of three records: of attempt, stage and the stage before."""
    sizes = [record[phase]["device_peak_gb"] for record in (attempt, reference, parent)]
    # Categories that the attempt lacks cannot have made its peak larger.
    breakdown = attempt[phase]["breakdown_gb"]
    expected = reference[phase]["breakdown_gb"]
    categories = tuple(Category(name, gb, expected.get(name)) for name, gb in breakdown.items())
    # One process runs on the learner's own computer; several GPUs are emulated.
    device = attempt["device"] if attempt["world_size"] > 1 else None
    return Peak(phase, *sizes, reference["script"], parent["script"], device, categories)


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
    """Yield the results of all checks of a script, see check_results, as they are made."""
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
            yield Error(str(error))


def main(argv=None):
    parser = Parser(description=__doc__)
    parser.add_argument("file", type=Path, help="the script, such as my_06.py")
    number = "from 02 to 10 (default: the number in the file's name, or in its docstring)"
    parser.add_argument("--stage", metavar="NN", help=number)
    args = parser.parse_args(argv)
    attempt, reference = recognize(args.file, args.stage)
    title = f"{reference.name}.py, {reference.title}: {reference.idea}"
    print(f"{args.file.name} is an attempt at {title}")
    results = []
    for result in check(attempt, reference):
        verdict = "right" if result.right else "wrong"
        print(f"{verdict}: {check_texts.line(result)}", flush=True)
        results.append(result)
        if not results[0].right:
            break  # the other checks call these functions
    print(check_texts.conclusion(reference.name[:2], results))
    return 0 if all(result.right for result in results) else 1
