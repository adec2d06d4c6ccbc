"""The levels of the game, from levels.toml, and the scripts that they hand out."""

import dataclasses
import re
import tomllib
from pathlib import Path

from emulated_gpu.cards import CARDS
from shared.lab.predict.cases import replacements
from shared.lab.records import scripts
from shared.run.errors import UserError
from shared.run.record import ROOT

FIRST_LINE = re.compile(r"Level (\d+) on (\S+), ")
SHARED = "sys.path.append(str(Path(__file__).resolve().parents[1]))  # for shared/, from any folder"


# Compared by identity, as are levels: the lists from levels.toml in them have no hash.
@dataclasses.dataclass(frozen=True, eq=False)
class Change:
    """A way to change a level's script."""

    title: str
    replaced: tuple  # (text, its replacement)
    script: str | None  # that is changed instead of the level's
    outcome: str = "fits"  # a part of the judge's sentence
    why: str = ""


@dataclasses.dataclass(frozen=True, eq=False)
class Level:
    """A script that runs out of memory on a card, or is too slow there."""

    number: int
    title: str
    story: str
    script: str  # the stage or side road that it is made from
    card: str  # name in emulated_gpu.cards.CARDS
    replaced: tuple
    hints: tuple
    solutions: tuple  # Changes
    tries: tuple  # Changes that do not lead there
    model: str | None = None  # None: the full preset's
    gpus: int = 1
    share_gb: float | None = None  # of the card, that the script may take; None: all of it
    # An update may take so many times as long as by the reference, with room; None: to fit is all.
    times_as_long: float | None = None
    # The Change that does all that is asked for, but for the memory; None: the level's script.
    reference: Change | None = None

    def card_gb(self, card):
        """Return the memory that the level's script may take of a card."""
        return self.share_gb or CARDS[card].gb

    def text(self, change=None, card=None):
        """Return the source of the level's script, for a card, if it is another; changed, if so."""
        script = self.script
        replaced = self.replaced
        if change and change.script:  # another script in place of the level's
            script = change.script
            replaced = change.replaced
        elif change:
            replaced = (*replaced, *change.replaced)
        # An error if a stage has changed so that a level's replacements do not fit any more.
        code = scripts.changed(script, replaced).source
        # Without the stage's docstring, which would give the solution away.
        code = code.split('"""\n', 1)[1]
        # The line that is replaced next was all that needed it.
        code = code.replace("from pathlib import Path\n", "")
        code = code.replace(SHARED, f'sys.path.append("{ROOT}")  # for shared/')
        # FIRST_LINE reads this when the file is judged.
        first = f"Level {self.number} on {card or self.card}, {self.title}."
        return f'"""{first}\n\n{self.story.strip()}\n"""\n{code}'

    def setting(self, card):
        """Return the model, the batch and the card as text."""
        batch = re.search(r"^BATCH_SIZE = (\d+)", self.text(), re.MULTILINE)[1]
        several = f"{self.gpus} x " if self.gpus > 1 else ""
        model = self.model or "vit_l_16"  # the preset's, whose import would take seconds
        share = f", {self.share_gb:g} GB of it" if self.share_gb else ""
        return f"{model}, {batch} images per update, {several}{CARDS[card].title}{share}"


def _read():
    read = tomllib.loads(Path(__file__).with_name("levels.toml").read_text("utf-8"))

    def change(script=None, edits=(), replaced=(), **fields):
        # Several levels begin with the same edits, which have a name in levels.toml.
        pairs = replacements(read["edits"], edits, replaced)
        return {**fields, "script": script, "replaced": pairs}

    for number, fields in enumerate(read["levels"], 1):
        if "reference" in fields:
            fields["reference"] = Change("reference", tuple(fields["reference"]), script=None)
        for kind in ("solutions", "tries"):
            fields[kind] = tuple(Change(**change(**each)) for each in fields[kind])
        yield Level(number, **change(**fields))


LEVELS = tuple(_read())


def get(text):
    """Return the Level of a number, as text."""
    if not text.isdecimal() or not 1 <= int(text) <= len(LEVELS):
        raise UserError(f"there is no level {text}; there are 1 to {len(LEVELS)}")
    return LEVELS[int(text) - 1]


def of_file(path, docstring):
    """Return the Level of a file, and the name of its card.

    They are in the docstring; without it, the level is the first number in the file's name.
    """
    if line := FIRST_LINE.match(docstring):
        if line[2] not in CARDS:
            raise UserError(f"{path.name}: there is no card {line[2]}; the level's is in its name")
        return get(line[1]), line[2]
    # A player may have removed the docstring.
    number = re.search(r"\d+", path.stem)
    if not number:
        raise UserError(
            f'{path.name}: of which level? Begin its docstring with "Level 1 on t4, ", '
            "or put the number into its name: fit_1.py"
        )
    level = get(number[0])
    return level, level.card
