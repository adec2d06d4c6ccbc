"""Storing the records of the commands here, and showing them on pages."""

import json

from shared.lab.records import markdown
from shared.lab.records.atomic_files import write_text
from shared.lab.records.views import origin


def store(file, command, records):
    """Store the records of `python -m shared COMMAND`, and print their number."""
    command = f"python -m shared {command}"
    records = [{**record, "command": command} for record in records]
    write_text(file, json.dumps(records, indent=1) + "\n")
    print(f"{file.name}: {len(records)} records")


def table(rows, records, file, *notes):
    """Return a table in Markdown, the notes below it, and the origin of the file's records."""
    from_where = markdown.folded(markdown.ORIGIN, [origin(records, file)])
    below = [line for note in notes for line in ("", note)]
    return "\n".join([*markdown.table(rows), *below, "", *from_where])
