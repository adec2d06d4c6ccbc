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
from unittest import mock

from shared.cli import Parser, UserError
from shared.predict.jobs import Wanted, run_jobs
from shared.predict.stage import predict
from shared.records import scripts
from shared.records.running import forks, run_script
from shared.records.views import size

OPTIONS = "--preset tiny --max-steps 4 --devices 1".split()
# The same sums in another order change a loss by 3e-4 of it at most, a missing zero_grad() by 8e-4.
ROUNDING, SLACK = 4e-4, 5e-3  # of a loss, and of a peak
ALONE = {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
# What unseen() looks for: names that fp16 on a GPU needs, calls that are told what to report and
# to save, and a division by 4 that should be by another 4.
FP16, CALLS = ("autocast", "GradScaler", "scale", "update"), ("parse", "training")
BY_SIZE = re.compile(r"\bloss( = [^/\n]*\))? ?/=? ?MICRO_BATCH_SIZE")
HINTS = {
    "gradients": "is zero_grad() missing, or only after the forward pass?",
    "optimizer states": "another optimizer, such as Adam, or precision?",
    "activations": "micro-batches, precision, or a graph that is kept?",
}


def parts(path):
    """Return a script's functions, constants as {name: code}, docstring, and lines below it."""
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError) as error:
        where = f"{path.name}, line {getattr(error, 'lineno', None) or 1}"
        raise UserError(f"{where}: {type(error).__name__}: {error.args[0]}") from None
    functions = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    values = [node for node in tree.body if isinstance(node, (ast.Assign, ast.AnnAssign))]
    targets = [getattr(node, "target", None) or node.targets[0] for node in values]
    constants = {ast.unparse(t): ast.unparse(n.value) for t, n in zip(targets, values) if n.value}
    docstring = ast.get_docstring(tree)
    start = 0 if docstring is None else tree.body[0].end_lineno
    return functions, constants, docstring or "", path.read_text().splitlines()[start:]


def recognize(file, stage):
    """Return the Script in a file, and that of the stage it is an attempt at."""
    functions, _, docstring, _ = parts(file)
    numbers = re.findall(r"(?<!\d)\d\d(?!\d)", file.stem) or re.findall(r"\d+", file.stem)
    told = [stage, *numbers, *re.findall(r"\AStage (\d\d)", docstring), "??"]
    number = next(filter(None, told)).zfill(2)
    chain = scripts.plain() if "make_device" in functions else scripts.ladder()
    stages = {name[:2]: scripts.get(name) for name in chain[1:]}
    if number not in stages or file.suffix != ".py":
        right = f"give a .py file, and a stage from {min(stages)} to {max(stages)}: --stage 06"
        raise UserError(f"{file.name} as stage {number}: {right}")
    name = str(file.absolute().with_suffix(""))
    return scripts.Script(name, "", "", stages[number].parent, False), stages[number]


def form(mine, own):
    """Compare functions and constants; return whether they are right, and a line, as all below."""
    (there, its, *_), (wanted, known, *_) = parts(mine.path), parts(own.path)
    known.pop("SCALER", None)  # it may be made elsewhere
    if missing := [name for name in [*wanted, *known] if name not in [*there, *its]]:
        return False, f"functions and constants: no {', no '.join(missing)}"
    other = [f"{x} {its[x]} instead of {known[x]}" for x in known if its[x] != known[x]]
    return True, ", but ".join(["functions and constants are there", *other])


def diff(mine, own):
    """Compare the lines changed from the stage before; docstrings and names do not count."""
    its, new, old = (parts(script.path)[3] for script in (own, mine, scripts.get(own.parent)))
    words = [{*re.findall(r"[^\W\d]\w*", " ".join(lines))} for lines in (its, new)]
    other = rf"\b({'|'.join(words[0] ^ words[1])})\b"  # names that only one of the two has
    renamed = [[re.sub(other, "_", line) for line in lines] for lines in (old, new)]
    n, few = (sum(x[0] in "+-" for x in difflib.ndiff(*pair)) for pair in (renamed, (old, its)))
    text = f"{n} lines changed, {few} in {own.name}, at most {2 * few + 8}, from {own.parent}"
    return 0 < n <= 2 * few + 8, text


def unseen(mine, own):
    """Compare what the losses and peaks on a CPU do not show."""
    its, wanted = {}, {}
    for script, found in ((mine, its), (own, wanted)):
        for node in ast.walk(ast.parse(script.path.read_bytes())):
            called = getattr(node, "func", node)
            name = getattr(called, "attr", getattr(called, "id", ""))
            if name in FP16:
                found[name] = name
            elif name in CALLS and called is not node:
                found[name, len(node.args + node.keywords)] = ast.unparse(node)
    odd = [f"no {text}" for key, text in wanted.items() if key not in its]
    odd += [f"{name} of stage 02" for name in FP16[:2] if name in its and name not in wanted]
    if BY_SIZE.search(mine.path.read_text()):
        odd.append("divide a loss by how many micro-batches there are, not by their size")
    return not odd, f"unseen in this run: {', '.join(odd) or 'nothing is missing'}"


def losses(mine, own, _):
    """Compare the losses and precisions of two records."""
    texts = ["{first_loss:.4f} to {last_loss:.4f} in {precision}".format(**r) for r in (mine, own)]
    alike = [abs(mine[x] - own[x]) <= ROUNDING * own[x] for x in ("first_loss", "last_loss")]
    if all(alike) and mine["precision"] == own["precision"]:
        return True, f"losses agree, {texts[0]}"
    hint = "precision, optimizer, step(), learning rate, schedule, zero_grad(), or batch size?"
    share = "is each loss, in fp32, its share of the batch's, and is there one step per batch?"
    return False, f"losses {texts[0]} instead of {texts[1]}: {hint if alike[0] else share}"


def peak(mine, own, before, phase="train"):
    """Compare the peaks of a phase, and name the categories that are larger than in `own`."""
    now, wanted, earlier = (r[phase]["device_peak_gb"] for r in (mine, own, before))
    text = f"{'loading ' * (phase == 'load')}peak {size(now)}"
    text += f" on {mine['device']}" * (mine["world_size"] > 1)
    beside = f"{own['script']} {size(wanted)}, {before['script']} {size(earlier)}"
    if now <= (1 + SLACK) * wanted:
        return True, f"{text} as expected, {beside}"
    held, its = (r[phase]["breakdown_gb"] for r in (mine, own))
    said = [f"{text}, {beside}"]
    for name in sorted(held, key=lambda name: its.get(name, 0) / held[name]):
        if (more := held[name] - its.get(name, 0)) > SLACK * wanted:
            times = f"{size(more)} more, {held[name] / (its.get(name) or more):.1f} times"
            much = times if name in its else "new"
            hint = HINTS.get(name, "precision, batch size, or a second copy?")
            said.append(f"{name} {size(held[name])}, {much}: {hint}")
    return False, "; ".join(said)


def record(script):
    """Train a script for a few updates, and return its record."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log.txt"
        found, said = run_script(script.name, OPTIONS, log, context=forks())
        said_where = rf'{re.escape(script.path.name)}", (line \d+)'
        lines = re.findall(said_where, log.read_text(errors="replace"))
    if not found:
        raise UserError(f"{script.path.name}, {['meter.test() did not run', *lines][-1]}: {said}")
    return found


known = functools.cache(record)  # of the repository's own


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
        records = list(pool.map(lambda run, script: run(script), (record, known, known), trio))
    yield losses(*records)
    yield peak(*records)
    yield peak(*records, "load")
    if own.load().DEVICES > 1:
        asked = Wanted("tiny")
        try:
            yield peak(*run_jobs([(emulate, script.name, asked, script) for script in trio]))
        except UserError as error:  # such as tensors on different devices
            yield False, str(error)
    yield unseen(mine, own)


def main(argv=None):
    parser = Parser(description=__doc__)
    parser.add_argument("file", type=Path, help="the script, such as my_06.py")
    number = "from 02 to 10 (default: the number in the file's name, or in its docstring)"
    parser.add_argument("--stage", metavar="NN", help=number)
    args = parser.parse_args(argv)
    mine, own = recognize(args.file, args.stage)
    print(f"{args.file.name} is an attempt at {own.name}.py, {own.title}: {own.idea}")
    found = []
    for right, text in check(mine, own):
        print(f"{'right' if right else 'wrong'}: {text}", flush=True)
        found.append((right, text.partition(",")[0]))
        if not found[0][0]:
            break  # what follows needs the functions
    if wrong := sum(not right for right, _ in found):
        print(f"this is not stage {own.name[:2]} yet: {wrong} of {len(found)} lines are wrong")
    else:
        print(f"this is stage {own.name[:2]}: {', '.join(text for _, text in found[1:4])}")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
