"""Write the generated parts of all README.md: diffs, tables and answers.

A part stands between `<!-- generated: NAME OPTION="..." -->` and `<!-- end -->`; PARTS has the
functions that make what is in between. A figure in a sentence stands before a comment that names
it, see figures.py. A test fails when one is stale.
"""

import itertools
import re
import shlex

from shared.lab.lessons import (
    exercises,
    figures,
    game_sheet,
    long_context,
    lost_updates,
    misconceptions,
    on_cards,
    on_gpus,
    parts,
    pictures,
    proof,
    scale,
    side_roads,
    strips,
    times,
    variants,
)
from shared.lab.records import scripts
from shared.lab.records.atomic_files import write_text
from shared.run.cli import Parser
from shared.run.record import ROOT

# The shortest text up to an end, since a page has several parts.
PART = re.compile(r"(<!-- generated: (.+?) -->\n).*?(<!-- end -->)", re.DOTALL)
PARTS = {
    "answer": exercises.part,
    "compared": proof.compared,
    "diff": parts.diff,
    "game": game_sheet.part,
    "glance": parts.glance,
    "grown": variants.grown,
    "how_right": proof.how_right,
    "ladder": parts.ladder,
    "language_models": parts.language_models,
    "long_context": long_context.part,
    "lost_updates": lost_updates.part,
    "map": side_roads.overview,
    "measured_gist": on_gpus.gist,
    "measured_ladder": parts.measured_ladder,
    "measured_learning": on_gpus.learning,
    "measured_others": on_gpus.elsewhere,
    "measured_outside": on_gpus.outside,
    "measured_scripts": on_gpus.part,
    "measured_summary": on_gpus.summary,
    "measured_times": times.every,
    "misses": proof.misses,
    "misconceptions": misconceptions.part,
    "on_a_card": on_cards.part,
    "scale": scale.part,
    "one_by_one": parts.one_by_one,
    "one_gpu": parts.one_gpu,
    "origin": parts.origin,
    "picture": parts.picture,
    "published": proof.part,
    "published_speeds": proof.speeds,
    "side_roads": side_roads.table,
    "speed_table": times.table,
    "strips": strips.part,
    "traces": proof.traces,
    "unedited": proof.unedited,
    "variants": variants.part,
    "which_first": times.which_first,
}


def fill(page):
    """Return the text of a page with up-to-date generated parts."""
    answers = itertools.count(1)  # an answer has the number of its exercise

    def made(match):
        name, *words = shlex.split(match[2])
        options = dict(word.split("=", 1) for word in words)
        if name == "answer":
            options["number"] = next(answers)
        return f"{match[1]}{PARTS[name](page.parent, **options)}\n{match[3]}"

    return figures.filled(PART.sub(made, page.read_text()))


def pages():
    """Return the pages: README.md of the repository and of each stage, and those in shared/."""
    folders = [ROOT, *(ROOT / name for name in scripts.folders())]
    return [*(f / "README.md" for f in folders), *sorted((ROOT / "shared").glob("**/*.md"))]


def main(argv=None):
    Parser(description=__doc__.splitlines()[0]).parse_args(argv)
    for page in pages():
        # A page that stays as it is keeps its time, and is not listed.
        if (filled := fill(page)) != page.read_text():
            write_text(page, filled)
            print(f"{page.relative_to(ROOT)} written")
    pictures.draw()
