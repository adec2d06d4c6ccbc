"""Answers of the exercises on the pages, from stored records."""

from shared.lab.lessons import exercise_answers
from shared.lab.records import stored
from shared.lab.records.exercises import of_page


def stored_entries():
    """Return the stored entries, {(folder, number): entry}."""
    return {(e["folder"], e["number"]): e for e in stored.read(stored.EXERCISES)}


def answer(exercise):
    """Return the table of an answer, in Markdown."""
    entry = stored_entries()[exercise.key]
    return exercise_answers.text(exercise, entry["record"], entry["against"])


# The marker's other options are those of the exercise, and of_page() reads them.
def part(folder, number, **_):
    """Return the generated part of an exercise."""
    return answer(of_page(folder.name)[number - 1])
