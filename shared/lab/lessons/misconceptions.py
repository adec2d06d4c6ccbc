"""What people get wrong about GPU memory, each with a command that shows it.

`python -m shared misconceptions` runs the commands of misconceptions.toml, and stores what
they print; the sentences of the page take their figures from there.
"""

import dataclasses
import tomllib
import types
from pathlib import Path

from shared.cli import Parser
from shared.lab.evidence import on_cards
from shared.lab.lessons.exercises import predictions
from shared.lab.predict.tables import needs
from shared.lab.records import formats, markdown, stored
from shared.lab.records.origin import origin


@dataclasses.dataclass(frozen=True)
class Shown:
    """The figures of a record, as texts."""

    record: dict

    peak = property(lambda self: formats.size(self.record["train"]["device_peak_gb"]))
    reserved = property(lambda self: formats.size(self.record["train"]["device_reserved_gb"]))
    card = property(lambda self: formats.size(needs(self.record)))  # with the CUDA context and NCCL
    parameters = property(lambda self: self._held("parameters"))
    activations = property(lambda self: self._held("activations"))
    states = property(lambda self: self._held("optimizer states"))
    inputs = property(lambda self: self._held("inputs"))
    after = property(lambda self: self._held("parameters", "optimizer states"))  # the step

    def _held(self, *labels):
        held = self.record["train"]["breakdown_gb"]
        return formats.size(sum(held[label] for label in labels))


def every():
    """Return the entries of misconceptions.toml."""
    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))["things"]


def part(folder):
    """Return the entries for the page: title, two or three sentences, and the command."""
    printed = stored.read(stored.MISCONCEPTIONS)
    pieces = []
    for number, thing in enumerate(every(), 1):
        commands, error = thing.get("commands", []), None
        if stage := thing.get("on_card"):
            entry = on_cards.stored_pairs()[stage]
            sizes = entry["before"]["numbers"].items()
            error = types.SimpleNamespace(**{name: on_cards.gb(size) for name, size in sizes})
            commands = [entry["before"]["command"], *commands]
        shown = [
            Shown(record) for command in thing.get("commands", []) for record in printed[command]
        ]
        says = thing["says"].format(*shown, error=error)
        pieces += [f"**{number}. {thing['title']}.** {says}", ["```text", *commands, "```"]]
    records = [record for records in printed.values() for record in records]
    names = {"what": "their models", "commands": "the commands above"}
    made = origin(records, stored.MISCONCEPTIONS, **names)
    return markdown.text(*pieces, markdown.folded(markdown.ORIGIN, [made]))


def main(argv=None):
    Parser(description=__doc__.splitlines()[0]).parse_args(argv)
    asked = list(dict.fromkeys(c for thing in every() for c in thing.get("commands", ())))
    printed = stored.rounded(predictions(asked))
    stored.write(stored.MISCONCEPTIONS, printed)
    print(f"{stored.MISCONCEPTIONS.name}: {len(printed)} commands")


if __name__ == "__main__":
    main()
