"""The scripts in the numbered folders: which there are, what each is about, and which it builds on.

All of that is in the first line of a script's docstring, one of these:
    Stage 06, SGD: an optimizer without states.
    Stage 11 from 11_llm/before.py, all of it on text: the techniques together.
    Side road from 06_sgd/train.py, Adafactor: rows and columns instead of every weight.
A stage that names no parent builds on the file of the same name in the folder before it.
"""

import ast
import dataclasses
import functools
import importlib.util
import re
from pathlib import Path

from shared.common.errors import UserError
from shared.common.errors import missing

ROOT = Path(__file__).resolve().parents[2]
FOLDER = "[0-9][0-9]_*"
FIRST_LINE = re.compile(
    r"(?P<kind>Stage|Side road)( (?P<number>\d\d))?( from (?P<parent>\S+)\.py)?, "
    r"(?P<title>.+?): (?P<idea>.+?)\.?"
)
PLAIN = ", in plain PyTorch"


@dataclasses.dataclass(frozen=True)
class Script:
    """A script.

    Attributes:
        name: folder and file, such as "06_sgd/train".
        title: such as "SGD".
        idea: what it does, in a few words.
        parent: name of the script that it builds on; None if it builds on none.
        side_road: whether it is a side road, and not a stage.
    """

    name: str
    title: str
    idea: str
    parent: str | None
    side_road: bool

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
        """Whether it is in plain PyTorch, without Fabric; torchrun can start several processes."""
        return self.file == "plain"

    @property
    def lines(self):
        return self.path.read_text().splitlines()

    def load(self):
        """Imports the script as a new module, another one with each call.

        The module's constants are BATCH_SIZE, DEVICES, MICRO_BATCH_SIZE if it has micro-batches,
        SHARES if not each device has its own share of a batch, and in plain.py PRECISION. Its
        cli.TASK says what it is about.

        Raises:
            UserError: a package that it imports is not there.
        """
        spec = importlib.util.spec_from_file_location(self.name.replace("/", "_"), self.path)
        module = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except ModuleNotFoundError as error:
            raise UserError(f"{self.name}: {missing(error)}") from None
        return module


@functools.cache
def every():
    """Returns all scripts in order, {name: Script}; in each folder the side roads come last.

    Other files in the folders are left out.
    """
    found = {}
    for path in sorted(ROOT.glob(f"{FOLDER}/*.py")):
        docstring = ast.get_docstring(ast.parse(path.read_text())) or ""
        if line := FIRST_LINE.fullmatch(docstring.partition("\n")[0]):
            name = f"{path.parent.name}/{path.stem}"
            found[name] = line, path
    parents = {name: _parent(name, line, found) for name, (line, _) in found.items()}
    scripts = [
        Script(name, line["title"], line["idea"], parents[name], line["kind"] == "Side road")
        for name, (line, _) in found.items()
    ]
    scripts.sort(key=lambda script: (script.folder, script.side_road))
    return {script.name: script for script in scripts}


def _parent(name, line, found):
    if line["parent"]:
        return line["parent"]
    folder, _, file = name.partition("/")
    before = [other for other in found if other.endswith(f"/{file}") and other < name]
    follows = [other for other in before if int(other[:2]) == int(folder[:2]) - 1]
    return follows[-1] if follows else None


def get(name):
    """Returns the Script of a name such as "06_sgd/train".

    Raises:
        UserError: there is none.
    """
    if name not in every():
        raise UserError(f"there is no script {name}; 06_sgd/train is the name of 06_sgd/train.py")
    return every()[name]


def folders():
    """Returns the numbered folders in order, such as "01_baseline"."""
    return sorted({script.folder for script in every().values()})


def stages(among=None):
    """Returns the scripts that folders' names stand for: before.py if there is one, and train.py.

    Args:
        among: folders' names; None for all.
    """
    wanted = folders() if among is None else among
    names = [f"{folder}/{file}" for folder in wanted for file in ("before", "train")]
    return [name for name in names if name in every()]


def ladder():
    """Returns the train.py of the stages that each build on the folder before."""
    found = [name for name in stages() if every()[name].file == "train"]
    return [n for n in found if not every()[n].parent or every()[n].parent.endswith("/train")]


def plain(names=None):
    """Returns the scripts in plain PyTorch beside others.

    Args:
        names: of scripts; None for those of the ladder.

    Raises:
        UserError: there is none beside one of them.
    """
    wanted = [f"{name.partition('/')[0]}/plain" for name in (ladder() if names is None else names)]
    for name in wanted:
        if name not in every():
            first, last = (found.partition("/")[0] for found in (ladder()[0], ladder()[-1]))
            folder = name.partition("/")[0]
            raise UserError(f"{folder} has no plain.py; {first} to {last} have one")
    return wanted


def side_roads(among=None):
    """Returns the side roads in order.

    Args:
        among: folders' names; None for all.
    """
    found = (script for script in every().values() if script.side_road)
    return [script.name for script in found if among is None or script.folder in among]


def with_side_roads(names):
    """Returns scripts, the side roads in their folders, and the parents of these, in order."""
    roads = side_roads({get(name).folder for name in names})
    wanted = {*names, *roads, *(get(name).parent for name in roads)}
    return [name for name in every() if name in wanted]


def select(texts, option):
    """Returns the scripts that e.g. ["01-06", "08_fsdp", "06_sgd/plain"] means, in order.

    Args:
        texts: numbers, ranges of numbers, folders' names, scripts' names; several in one text have
            commas between them.
        option: what to call these texts when they are wrong.

    Raises:
        UserError: it means none, or one that is not there.
    """
    numbers = {name[:2]: name for name in folders()}
    chosen = set()
    for part in ",".join(texts).split(","):
        part = part.strip().rstrip("/").removesuffix(".py")
        if part in every():
            chosen.add(part)
            continue
        if part in numbers.values():
            chosen.update(stages([part]))
            continue
        if there := [s.file for s in every().values() if part.startswith(f"{s.folder}/")]:
            folder = part.partition("/")[0]
            raise UserError(
                f"{option} {part}: there is no such script; {folder} has {', '.join(there)}"
            )
        if not re.fullmatch(r"\d{1,2}(-\d{1,2})?", part):
            raise UserError(
                f"{option} {part}: there is no such stage; write numbers and ranges, "
                "such as 01-06,08, or names, such as 08_fsdp or 06_sgd/plain"
            )
        first, last = (part.split("-") * 2)[:2]
        wanted = [f"{n:02d}" for n in range(int(first), int(last) + 1)]
        missing = [n for n in wanted if n not in numbers]
        if missing or not wanted:
            which = f"stage {missing[0]}" if missing else "stage in it"
            there = f"{min(numbers)} to {max(numbers)}"
            raise UserError(f"{option} {part}: there is no {which}; there are {there}")
        chosen.update(stages([numbers[n] for n in wanted]))
    return [name for name in every() if name in chosen]
