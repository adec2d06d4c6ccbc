"""Figures of the misconceptions: run the commands of misconceptions.toml, store the records."""

import tomllib
from pathlib import Path

from shared.lab.evidence.by_command import predictions
from shared.lab.records import stored
from shared.run.cli import Parser


def every():
    """Return the entries of misconceptions.toml."""
    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))["things"]


def main(argv=None):
    Parser(description=__doc__.splitlines()[0]).parse_args(argv)
    commands = [command for thing in every() for command in thing.get("commands", ())]
    records = [record for printed in predictions(commands).values() for record in printed]
    stored.write(stored.MISCONCEPTIONS, stored.rounded(records))
    print(f"{stored.MISCONCEPTIONS.name}: {len(records)} records")
