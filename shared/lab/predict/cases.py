"""The runs behind the pages, from evidence/cases.toml: scripts, edits of their texts, settings."""

import dataclasses
import functools
import tomllib

from emulated_gpu.cards import CARDS
from shared.lab.predict.jobs import Wanted
from shared.lab.records import scripts, stored

FILE = stored.RESULTS.with_name("cases.toml")
SETTINGS = {field.name for field in dataclasses.fields(Wanted)}


@dataclasses.dataclass(frozen=True)
class Case:
    """A run that is wanted: a script, edits of its text, and settings."""

    script: str  # its name
    settings: Wanted
    replaced: tuple = ()  # (text, its replacement), in order
    edits: tuple = ()  # the names of those edits that its group does not share
    called: str | None = None  # the script's name in the record, if it is another one
    title: str | None = None  # the edits in a few words; identifies the case
    table: str | None = None  # the table of a page that shows it
    phase: str = "train"  # that the table shows; or "load"
    against: str | None = None  # the title of the case that it is compared with
    tiny: bool = False  # whether to measure the tiny model, too
    mend: str | None = None  # the correction, if the edits are a mistake
    group: int | None = None  # GPUs that have all shards together, no group of of(); None: all

    @property
    def name(self):
        """The script's name in the record."""
        return self.called or self.script

    @property
    def changed_script(self):
        """The scripts.Script with the edits."""
        return dataclasses.replace(scripts.changed(self.script, self.replaced), name=self.name)


@functools.cache
def tables():
    """Return cases.toml, parsed."""
    return tomllib.loads(FILE.read_text("utf-8"))


def replacements(edits, names, further=()):
    """Return the pairs of named edits, {name: [(text, its replacement)]}, and further pairs.

    Each is there once, since two techniques may need the same.
    """
    pairs = [*(pair for name in names for pair in edits[name]), *further]
    return tuple(dict.fromkeys(map(tuple, pairs)))


def case(always=(), edits=(), replaced=(), limited=False, **fields):
    """Return the Case of fields as cases.toml has them.

    Args:
        always: names of edits that are not in Case.edits.
        limited: whether the card has only its own memory; else it has more than anything needs.
    """
    settings = {"preset": "full"} | {key: fields.pop(key) for key in SETTINGS & fields.keys()}
    if "card" in settings:
        settings["card"] = CARDS[settings["card"]]
    if limited:
        settings["card_gb"] = settings["card"].gb
    settings["words"] = tuple(settings.get("words", ()))
    pairs = replacements(tables()["edits"], [*always, *edits], replaced)
    return Case(settings=Wanted(**settings), replaced=pairs, edits=tuple(edits), **fields)


@functools.cache
def of(group):
    """Return the cases of a group of cases.toml, in order."""
    found = []
    for shared in tables()[group]:
        shared = {"sweep": ["preset", ["full"]], **shared}
        rows = shared.pop("cases")
        field, values = shared.pop("sweep")
        for value in values:
            for row in rows:
                # Others are compared with the first of the group.
                against = {} if row is rows[0] else {"against": rows[0].get("title")}
                found.append(case(**{field: value, **against, **shared, **row}))
    return tuple(found)


def one_by_one(devices):
    """Return the cases from 11_llm/before.py to train.py, with a technique more each.

    On one device, where there is nothing to shard, they end with checkpointing.
    """
    return [c for c in of("one_by_one") if (c.settings.devices == 1) == (devices == 1)]
