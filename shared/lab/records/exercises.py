"""The exercises on the lesson pages: a question, a command that prints the answer, and the reason.

All of that stands on the page, where a teacher edits it; only the table of the answer is generated.
`python -m shared records exercises` stores the records that the commands make, for
lessons/exercises.py.
"""

import dataclasses
import re
import shlex

from shared.lab.records import scripts
from shared.run.record import ROOT

PREDICT = "python -m shared predict "  # how the commands of predictions begin
# The question, the command, the options of the answer, and the reason.
PARTS = re.compile(
    r".*?\n(.*?)```bash\n(.*?)\n```\n.*?<!-- generated: answer (.*?) -->\n.*?<!-- end -->\n"
    r"(.*?)</details>",
    re.DOTALL,
)


@dataclasses.dataclass(frozen=True)
class Exercise:
    """An exercise of a lesson page."""

    folder: str
    number: int  # counted from 1 on each page
    question: str  # Markdown, like the reason
    command: str  # the exercise asks about the last record that it makes
    reason: str
    against: str  # a script, in the same output or else in the stored records; or another command
    phase: str = "train"  # or "load"
    memory: tuple = ("device",)  # which peaks are compared: device, host or both

    @property
    def key(self):
        return self.folder, self.number


def of_page(folder):
    """Return the exercises on the page of a stage's folder."""
    # Between two headings, since other sections may have collapsible parts as well.
    rest = (ROOT / folder / "README.md").read_text().partition("\n## Try it\n")[2]
    section = rest.partition("\n## ")[0]
    exercises = []
    for number, block in enumerate(section.split("\n### Exercise ")[1:], 1):
        question, command, marker, reason = map(str.strip, PARTS.match(block).groups())
        # Only the first = separates, since a command in `against` may contain more of them.
        options = dict(option.split("=", 1) for option in shlex.split(marker))
        memory = tuple(options.pop("memory", "device").split(","))
        entry = Exercise(folder, number, question, command, reason, memory=memory, **options)
        exercises.append(entry)
    return exercises


def every():
    """Return the exercises of all pages."""
    return [exercise for folder in scripts.folders() for exercise in of_page(folder)]


def is_prediction(command):
    """Return whether a command predicts; otherwise it runs a script."""
    return command.startswith(PREDICT)


def commands(exercise):
    """Return the commands of an exercise: its own command, and that of the reference, if any."""
    # The name of a script begins with the number of its folder, so this is a command.
    second = [exercise.against] if exercise.against.startswith("python ") else []
    return [exercise.command, *second]
