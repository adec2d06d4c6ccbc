"""The scripts in the numbered folders: their names, titles and ideas, and their parents.

All of that is in the first line of a script's docstring, in one of these forms:
    Stage 06, SGD: an optimizer without states.
    Stage 11 from 11_llm/before.py, all of it on text: the techniques together.
    Side road from 06_sgd/train.py, Adafactor: rows and columns instead of every weight.
A stage that names no parent builds on the file of the same name in the folder before it.

The docstring of a side road also says what it costs, and how its losses in the tiny preset and its
predicted memory at full size compare with those of its parent. Tests compare them with records:
    Cost: a second copy of the weights, in fp32: 4N bytes

    Losses: the same
    Memory: 4N bytes more
LOSSES has all kinds of losses. Of memory, AMOUNT has the forms; N is the number of weights, and
", about 8N bytes more on the host" may follow.
"""

import ast
import dataclasses
import functools
import importlib.util
import linecache
import re
import sys
import tokenize

from shared.run.errors import UserError
from shared.run.record import ROOT

# The scripts after 07 for one GPU, in place of 08.
ON_ONE_GPU = "09_act_ckpt/one_gpu", "06_sgd/adam_on_host", "10_offload/activations_only"
ONE_GPU = "01-07", *ON_ONE_GPU
FLAGS = re.MULTILINE | re.DOTALL
FOLDER = "[0-9][0-9]_*"
LOSSES = (
    "the same",  # to the last bit
    "nearly the same",  # the computation is the same, in another order or type
    "other",  # but for the first, since nothing is updated before it
    "other from the start",  # the first one differs, by at most 1 %: numbers are rounded, or random
    "other; they fall if the weights are pretrained",  # those of the tiny preset are random
    "not a number after one update",
    "of another task",
)
AMOUNT = r"(?:the same|nearly the same|(?:(?:about )?\d*N bytes )?(?:more|less))"
MEMORY = re.compile(rf"({AMOUNT})(?:, ({AMOUNT}) on the host)?")
FIRST_LINE = re.compile(
    r"(?P<kind>Stage|Side road)( \d\d)?( from (?P<parent>\S+)\.py)?, "
    r"(?P<title>.+?): (?P<idea>.+?)\.?"
)


@dataclasses.dataclass(frozen=True)
class Script:
    """A stage or a side road."""

    name: str  # folder and file, such as "06_sgd/train"
    title: str
    idea: str  # its technique, in a few words
    parent: str | None  # name of the script that it builds on
    side_road: bool  # else a stage
    docstring: str = ""
    changed_source: str | None = None  # takes the place of the file's, see changed()

    @classmethod
    def of_file(cls, path, parent=None):
        """Return the Script of any file, which need not be a stage or a side road."""
        return cls(str(path.absolute().with_suffix("")), "", "", parent, False)

    @property
    def folder(self):
        return self.name.partition("/")[0]

    @property
    def file(self):
        return self.name.partition("/")[2]

    @property
    def path(self):
        return ROOT / f"{self.name}.py"

    @property
    def plain(self):
        """Return whether this is a stage in plain PyTorch."""
        return self.file == "plain"

    @property
    def source(self):
        """The text of the script."""
        if self.changed_source is not None:
            return self.changed_source
        return read_source(self.path)

    @property
    def lines(self):
        return self.source.splitlines()

    @property
    def start(self):
        """The number of lines of the docstring, with its quotes."""
        return 1 + next(n for n, line in enumerate(self.lines) if line.endswith('"""'))

    @property
    def code(self):
        """The lines below the docstring, which explains, and changes with every script."""
        return self.lines[self.start :]

    @property
    def cost(self):
        """The cost of a side road, a paragraph of its docstring.

        Raises:
            UserError: it has none; losses and memory raise the same, also if they cannot be read.
        """
        return self._declared("Cost", r".+?(?=\n\n|\Z)")

    @property
    def losses(self):
        """The losses of a side road against those of its parent, one of LOSSES."""
        return self._declared("Losses", "|".join(map(re.escape, LOSSES)))

    @property
    def memory(self):
        """The peaks of a side road on device and host against its parent's, two forms of AMOUNT."""
        device, host = MEMORY.fullmatch(self._declared("Memory", MEMORY.pattern)).groups()
        return device, host or "the same"

    def _declared(self, key, value):
        """Return the docstring's entry for a key; `value` is a regular expression."""
        if declared := re.search(rf"^{key}: ({value})$", self.docstring, FLAGS):
            return " ".join(declared[1].split())
        where = "shared/lab/records/scripts.py has the forms"
        raise UserError(f"{self.name}.py: its docstring needs a line '{key}: ...'; {where}")

    def load(self):
        """Import the script as a module, a new one with each call.

        The module's constants are BATCH_SIZE, DEVICES, MICRO_BATCH_SIZE if it has micro-batches,
        SHARES if some devices compute with the same share of a batch, and in plain.py PRECISION.
        TASK is set here: that of `cli`, of shared.images or shared.text, or of a module of
        shared.text.roads; None if the file imports none of these, as one that is no script.
        """
        spec = importlib.util.spec_from_file_location(self.name.replace("/", "_"), self.path)
        module = importlib.util.module_from_spec(spec)
        # Not by its loader, which would read the file, where the source may be a changed one. Its
        # lines are those of the source: without a time of change, linecache never reads the file.
        name = str(self.path)
        folder = str(self.path.parent)
        # For files beside a reader's script, as when Python runs it; ours have none.
        if folder not in sys.path and not self.path.is_relative_to(ROOT):
            sys.path.insert(0, folder)
        linecache.cache[name] = len(self.source), None, self.source.splitlines(True), name
        exec(compile(self.source, self.path, "exec"), vars(module))
        names = ("cli", "causal", "mixture", "rewards", "captions")
        tasks = (getattr(module, name).TASK for name in names if hasattr(module, name))
        module.TASK = next(tasks, None)
        return module


def read_source(path):
    """Return the text of a Python file, in the encoding that it declares (PEP 263)."""
    with tokenize.open(path) as file:
        return file.read()


@functools.cache
def every():
    """Return all scripts in order, {name: Script}; in each folder the side roads come last.

    Other files in the folders are left out.
    """
    docstrings = {}
    for path in sorted(ROOT.glob(f"{FOLDER}/*.py")):
        docstring = ast.get_docstring(ast.parse(path.read_bytes())) or ""
        if FIRST_LINE.fullmatch(docstring.partition("\n")[0]):
            docstrings[f"{path.parent.name}/{path.stem}"] = docstring
    all_scripts = []
    for name, docstring in docstrings.items():
        line = FIRST_LINE.fullmatch(docstring.partition("\n")[0])
        parent = line["parent"] or _in_folder_before(name, docstrings)
        side_road = line["kind"] == "Side road"
        all_scripts.append(Script(name, line["title"], line["idea"], parent, side_road, docstring))
    # The sort is stable, so names keep their order among stages and among side roads.
    all_scripts.sort(key=lambda script: (script.folder, script.side_road))
    return {script.name: script for script in all_scripts}


def _in_folder_before(name, names):
    """Return the name, among these, of the same file in the folder before, or None."""
    before = f"{int(name[:2]) - 1:02d}"
    file = name.partition("/")[2]
    return next((n for n in names if n[:2] == before and n.endswith(f"/{file}")), None)


def get(name):
    """Return the Script with a name such as "06_sgd/train"."""
    if name not in every():
        raise UserError(f"there is no script {name}; 06_sgd/train is the name of 06_sgd/train.py")
    return every()[name]


def folders():
    """Return the numbered folders that have a page, in order, such as "01_baseline"."""
    names = {script.folder for script in every().values()}
    return sorted(name for name in names if (ROOT / name / "README.md").exists())


def changed(name, replacements):
    """Return a script with texts in its source replaced; replacements are (old, new).

    Raises:
        ValueError: an old text is not in the source, or more than once.
    """
    script = get(name)
    source = script.source
    for old, new in replacements:
        if source.count(old) != 1:
            raise ValueError(f"{script.path}: {old!r} is there {source.count(old)} times, not once")
        source = source.replace(old, new)
    return dataclasses.replace(script, changed_source=source)


def stages(among=None):
    """Return the stages of folders, by default of all: before.py, if any, and train.py."""
    wanted = folders() if among is None else among
    names = [f"{folder}/{file}" for folder in wanted for file in ("before", "train")]
    return [name for name in names if name in every()]


def ladder():
    """Return the ladder: each train.py that builds on the train.py of the folder before."""
    trains = [name for name in stages() if every()[name].file == "train"]
    return [n for n in trains if not every()[n].parent or every()[n].parent.endswith("/train")]


def plain(names=None):
    """Return the plain PyTorch versions of scripts, by default of the ladder."""
    return [get(f"{name.partition('/')[0]}/plain").name for name in names or ladder()]


def side_roads(among=None):
    """Return the side roads in order, by default of all folders."""
    roads = (script for script in every().values() if script.side_road)
    return [road.name for road in roads if among is None or road.folder in among]


def with_side_roads(names):
    """Return scripts, the side roads in their folders, and the parents of these, in order."""
    further = side_roads({get(name).folder for name in names})
    wanted = {*names, *further, *(get(name).parent for name in further)}
    return [name for name in every() if name in wanted]


def select(texts, option):
    """Return the scripts that, e.g., ["01-06", "08_fsdp,09", "06_sgd/plain"] selects, in order."""
    numbers = {name[:2]: name.partition("/")[0] for name in every()}
    chosen = set()
    for part in ",".join(texts).split(","):
        name = part.strip().rstrip("/").removesuffix(".py")
        if name in every():
            chosen.add(name)
        elif name in numbers.values():
            chosen.update(stages([name]))
        elif span := re.fullmatch(r"(\d{1,2})(?:-(\d{1,2}))?", name):
            first = int(span[1])
            last = int(span[2] or span[1])
            wanted = [f"{n:02d}" for n in range(first, last + 1)]
            # It is empty if a range runs backwards, such as 08-06.
            if not wanted or {*wanted} - {*numbers}:
                stages_text = f"there are {min(numbers)} to {max(numbers)}"
                raise UserError(f"{option} {name}: there is no stage {name}; {stages_text}")
            chosen.update(stages([numbers[n] for n in wanted]))
        else:
            form = "numbers and ranges, such as 01-06,08, or names, such as 08_fsdp or 06_sgd/plain"
            raise UserError(f"{option} {name}: there is no such script; write {form}")
    return [name for name in every() if name in chosen]


def add_stages(parser):
    """Add the arguments that select scripts for a command; selected() reads them.

    Spaces or commas separate stages.
    """
    which = "which, such as 06, 01-06,08 or 06_sgd/plain (default: all stages that --model suits)"
    parser.add_argument("stages", nargs="*", metavar="STAGE", help=which)
    beside = "add the side roads in their folders, other techniques, each with its parent"
    parser.add_argument("--side-roads", "--all", action="store_true", help=beside)


def selected(args):
    """Return the scripts that the arguments of add_stages() select, None without arguments."""
    return select(args.stages, "stage") if args.stages else None
