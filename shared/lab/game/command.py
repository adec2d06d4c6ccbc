"""Make it fit: scripts that run out of memory on a card. Change them until they do not.

Without WHAT, list the levels. A number writes the script of that level into this folder. The name
of a file judges it: does it fit on the emulated card, and does it still learn the same?
"""

import argparse
import json
from pathlib import Path

from emulated_gpu import cards
from shared.lab.game import levels
from shared.lab.grading.source import parts
from shared.lab.records.atomic_files import write_text
from shared.run.cli import Parser, positive, try_writing
from shared.run.errors import UserError

RUN = "python -m shared game"
# The figures that a player can improve, each with its form.
BEST = {
    "needs_gb": "{:.2f} GB",
    "lines": "changed lines: {}",
    "ms": "about {:.3g} ms per image",
}


class Progress:
    """The player's progress, in fit.json of a folder: for each level best figures and hints."""

    def __init__(self, folder):
        self.file = folder / "fit.json"
        self.levels = {}
        if self.file.exists():
            try:
                self.levels = json.loads(self.file.read_text())
                for level in self.levels.values():
                    level["hints"], level["best"].items()  # the file could be any JSON
            except (ValueError, AttributeError, TypeError, KeyError):
                raise UserError(f"{self.file} is not a record of this game; remove it") from None

    def of(self, level):
        """Return the progress in a level, to be changed: {"hints": number, "best": {card: ...}}."""
        return self.levels.setdefault(str(level.number), {"hints": 0, "best": {}})

    def save(self):
        write_text(self.file, json.dumps(self.levels, indent=1) + "\n")


def best_text(values):
    """Return the figures of a player as text, {name in BEST: number}."""
    return ", ".join(form.format(values[name]) for name, form in BEST.items())


def listed(progress):
    """Return the levels, and the player's best figures, as lines of text."""
    lines = []
    for level in levels.LEVELS:
        lines.append(f"{level.number}  {level.title}: {level.setting(level.card)}")
        for card, best in progress.of(level)["best"].items():
            lines.append(f"   your best on {cards.CARDS[card].title}, each: {best_text(best)}")
    return [*lines, "", f"{RUN} 1   begins level 1"]


def begin(level, card, folder):
    """Write the script of a level into a folder, and tell what to do."""
    path = folder / f"fit_{level.number}.py"
    if path.exists():
        raise UserError(f"{path.name} is there; judge it: {RUN} {path.name}, or move it away")
    try_writing(path)
    if card != level.card:
        suits(level, card)  # a minute; its own card is known to suit
    path.write_text(level.text(card=card))
    gb = level.card_gb(card)
    print(f"Level {level.number}, {level.title}: {level.setting(card)}.")
    print(level.story.strip())
    print(f"\nYour script is {path.name}. Change it until it fits into {gb:.2f} GB, and learns the")
    print("same: the same model, batch, precision and losses.")
    if level.times_as_long:
        most = f"at most {level.times_as_long:g} times as long as with room for everything"
        print(f"An update may take {most}, by emulated time.")
    print()
    print(f"{RUN} {path.name}          runs it on the emulated card, and judges")
    print(f"{RUN} {path.name} --hint   gives a hint, of {len(level.hints)}")
    if '"bf16' in level.text() and not cards.CARDS[card].bf16:
        print(f"\nA {cards.CARDS[card].title} has no bf16, and computes it in fp32, slowly.")
    # The script itself would take the preset's model, which the level replaces.
    model = f" --model {level.model}" if level.model else ""
    look = f"python -m emulated_gpu --card {card} {path.name} --dry-run{model}"
    print(f"\nTo see what it prints: {look}")


def suits(level, card):
    """Raise UserError if a level cannot be played on a card."""
    from shared.lab.game.sheet import verdicts

    # As handed out it must not fit, or be too slow, and at least one solution must do.
    attempts = [(level, card, change) for change in (None, *level.solutions)]
    start, *solutions = verdicts(attempts)
    title = cards.CARDS[card].title
    usual = cards.CARDS[level.card].title
    if level.times_as_long:
        if not start["slow"]:
            raise UserError(f"level {level.number} is no game on {title}; its own card is {usual}")
        if all(verdict["slow"] or "said" in verdict for verdict in solutions):
            raise UserError(f"no solution known here is fast enough on {title}; play it on {usual}")
    elif "said" not in start:
        raise UserError(f"level {level.number} fits on {title} as it is; its own card is {usual}")
    if all("said" in verdict for verdict in solutions):
        least = min(verdict["needs_gb"] for verdict in solutions)
        raise UserError(
            f"no solution known here of level {level.number} fits on {title}: "
            f"{least:.2f} GB at least; its own card is {usual}"
        )


def hint(level, number, progress):
    """Print a hint, by default the next."""
    of_level = progress.of(level)
    last = len(level.hints)
    if number > last:
        raise UserError(f"--hint {number}: there are {last} hints")
    number = number or of_level["hints"] + 1
    if number > last:
        return print(f"there are {last} hints; solutions: shared/lab/game/teacher.md")
    print(f"hint {number} of {last}: {level.hints[number - 1]}")
    # Hint 1 once more does not take back the later ones.
    of_level["hints"] = max(of_level["hints"], number)
    progress.save()


def play(path, level, card, progress):
    """Judge a file, and keep what is best; return the exit code."""
    from shared.lab.game import texts  # not for hints: they import much
    from shared.lab.game.judge import Play, judge

    try_writing(progress.file)
    print(f"{path.name}, level {level.number}, {level.title}: {level.setting(card)}", flush=True)
    (verdict,) = judge([Play(level, card, path)])
    if "failed" in verdict:
        raise UserError(verdict["failed"])
    print("\n".join(texts.lines(verdict, path)))
    if verdict["refused"] or verdict["slow"] or "said" in verdict:
        print(f"not yet; a hint: {RUN} {path.name} --hint")
        return 1
    # On a card with more memory the script may fit as it was handed out.
    if not verdict["lines"]:
        print("nothing is changed, so this is no solution")
        return 1
    best = progress.of(level)["best"].setdefault(card, {})
    # Each figure has a best of its own: the script with the fewest changes is rarely the smallest.
    for name in BEST:
        best[name] = min(verdict[name], best.get(name, verdict[name]))
    progress.save()
    print(f"level {level.number} is done: {best_text(verdict)}")
    print(f"your best of each, of all your files: {best_text(best)}")
    last = level.number == len(levels.LEVELS)
    print("that was the last level" if last else f"next: {RUN} {level.number + 1}")
    return 0


def key(text):
    """Return the name in CARDS of a card, as emulated_gpu.cards.get() accepts it."""
    cards.get(text)
    return text.lower().replace(" ", "")


def parse(argv):
    formatter = argparse.RawDescriptionHelpFormatter
    parser = Parser(prog=RUN, description=__doc__, formatter_class=formatter)
    add = parser.add_argument
    add("what", nargs="?", metavar="WHAT", help="a level, such as 1, or a file, such as fit_1.py")
    which = "begin a level on another card than its own"
    add("--card", type=key, metavar="NAME", help=f"{which}: {', '.join(cards.CARDS)}")
    hints = "show the next of a level's hints, or hint N; nothing is judged"
    # const is 0, which no number of a hint is: the next one.
    add("--hint", nargs="?", type=positive, const=0, metavar="N", help=hints)
    args = parser.parse_args(argv)
    if not args.what and (args.card or args.hint is not None):
        parser.error("name a level or a file")
    # Another card than the docstring's would judge a level that was not played.
    if args.card and not args.what.isdecimal():
        parser.error("--card begins a level, by its number; a file's card is in its first line")
    return args


def main(argv=None):
    args = parse(argv)
    if not args.what:
        print("\n".join(listed(Progress(Path()))))
        return 0
    if args.what.isdecimal():
        level = levels.get(args.what)
        if args.hint is None:
            return begin(level, args.card or level.card, Path())
        return hint(level, args.hint, Progress(Path()))
    path = Path(args.what)
    if path.suffix != ".py":
        raise UserError(f"{path} is neither a level nor a .py file; see --help")
    # By the docstring first, as a player may rename the file.
    level, card = levels.of_file(path, parts(path).docstring)
    progress = Progress(path.parent)
    if args.hint is not None:
        return hint(level, args.hint, progress)
    return play(path, level, card, progress)
