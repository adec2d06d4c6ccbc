"""What the commands here store, and how pages show it."""

import json

from shared.records import markdown
from shared.records.atomic_files import write_text
from shared.records.views import origin


def store(file, command, records):
    """Stores the records of `python -m shared.evidence.<command>`, and prints how many they are."""
    command = f"python -m shared.evidence.{command}"
    found = [{**record, "command": command} for record in records]
    write_text(file, json.dumps(found, indent=1) + "\n")
    print(f"{file.name}: {len(found)} records")


def table(rows, records, file, *notes):
    """Returns a table in Markdown, notes below it, and where the records in this file come from."""
    from_where = markdown.folded(markdown.ORIGIN, [origin(records, file)])
    below = [line for note in notes for line in ("", note)]
    return "\n".join([*markdown.table(rows), *below, "", *from_where])
