"""Storing the records of the commands here, and showing them on pages."""

from shared.lab.records import markdown, stored
from shared.lab.records.origin import origin


def store(file, command, records):
    """Store the records of `python -m shared COMMAND`, and print their number."""
    command = f"python -m shared {command}"
    records = [{**record, "command": command} for record in records]
    stored.write(file, records)
    print(f"{file.name}: {len(records)} records")


def table(rows, records, file, *notes):
    """Return a table in Markdown, the notes below it, and the origin of the file's records."""
    from_where = markdown.folded(markdown.ORIGIN, [origin(records, file)])
    below = [line for note in notes for line in ("", note)]
    return "\n".join([*markdown.table(rows), *below, "", *from_where])
