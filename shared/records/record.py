"""Records: how to make, read and name them; fields.py tells what is in one.

Scripts append records to a file, one JSON object per line; the predictor prints a list of them. A
figure that was not measured is null, never 0.
"""

import datetime
import json
import types
import typing

from shared.cli import UserError
from shared.records.fields import Phase, Record
from shared.records.machine import git_commit, versions
from shared.records.scripts import ROOT
from shared.records.units import one_line, quality

RESULTS = ROOT / "shared" / "evidence" / "results"
TINY_MEASURED = RESULTS / "tiny-cpu.jsonl"  # by `python -m shared.ladder --preset tiny`

OF_ALL = list(Record.__annotations__)[: list(Record.__annotations__).index("as_torch")]
NEEDED = "script model dataset device world_size epochs load train test_accuracy versions".split()
NEEDED += ["git_commit", "command", "date"]
# Fields that are only for images, or texts, or models that are judged so.
ONLY = dict.fromkeys(("image_px", "images_per_second"), "images")
ONLY |= dict.fromkeys(("max_length", "texts_per_second"), "texts")
ONLY |= dict.fromkeys((f"{part}_perplexity" for part in ("train", "val", "test")), "perplexity")


def new(task, **known):
    """Returns a record with what is known, null for the other fields that all records have.

    Versions, commit and date are filled in.

    Args:
        task: a common.task.Task.
        known: fields of Record.
    """
    unknown = known.keys() - Record.__annotations__
    assert not unknown, f"a record has no {', '.join(sorted(unknown))}"
    filled_in = {"versions": versions(task, known.get("script")), "git_commit": git_commit()}
    known = {**known, **filled_in, "date": datetime.date.today().isoformat()}
    fields = [name for name in OF_ALL if ONLY.get(name) in (None, task.unit, task.learned)]
    return {**dict.fromkeys(fields), **known}


def read(file):
    """Returns the records in a file of one JSON object per line, and how many lines are none.

    Raises:
        UserError: it is no file.
        OSError: it cannot be read.
    """
    found, lines = split(file)
    return found, len(lines)


def split(file):
    """Returns the records in a file of one JSON object per line, and the lines that are none.

    Raises: as read().
    """
    if file.exists() and not file.is_file():  # reading a pipe would wait for a writer
        raise UserError(f"{file} is no file; there must be records in it, one per line")
    found, broken = [], []
    for line in file.read_bytes().splitlines() if file.exists() else []:
        try:
            record = today(json.loads(line.decode()))
            json.dumps(record, ensure_ascii=False).encode()  # halves of characters cannot be shown
            found.append(record)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            broken.append(line)  # such as a last line that is incomplete
    return found, broken


def read_list(file):
    """Returns the records in a file of one JSON list, as the predictor prints them."""
    return [today(record) for record in json.loads(file.read_text())]


def today(record):
    """Returns a record in today's form; older ones have folder and file in separate fields.

    Raises:
        TypeError, KeyError, AttributeError, ValueError: it is no record.
    """
    if "stage" not in record:
        return checked(record)
    rest = {key: value for key, value in record.items() if key not in ("stage", "script")}
    if "measured" in rest:
        rest["measured"] = today(rest["measured"])
    return checked({"script": f"{record['stage']}/{record['script']}", **rest})


def checked(record):
    """Returns a record, whose fields can be shown.

    Raises:
        TypeError, KeyError, ValueError: a field is of another type than Record says, or a size is
            no positive number.
    """
    if not isinstance(record["script"], str):
        raise TypeError("script must be a name")
    _check_fields(record, Record)
    for phase in (record[name] for name in ("load", "train") if name in record):
        sizes = [phase["device_peak_gb"]]
        sizes += map(phase.get, ("device_reserved_gb", "host_peak_gb"))
        for gb in (*sizes, *phase.get("breakdown_gb", {}).values()):
            if gb is not None and not 0 <= gb < 1e9:
                raise ValueError("this is no size of a memory")
    return record


def usable(file):
    """Returns the records in a file that can be shown, and how many lines of it cannot.

    Raises: as read().
    """
    found, broken = read(file)
    shown = list(filter(complete, found))
    return shown, broken + len(found) - len(shown)


def complete(record):
    """Tells whether a record has what the table and the picture of a ladder need."""
    one = "max_length" if "max_length" in record else "image_px"
    at = record.get("peak_at", {"train": {"phase": "", "module": ""}})
    return (
        {*NEEDED, one, f"{ONLY[one]}_per_second"} <= record.keys()
        and all(record[phase].keys() >= Phase.__annotations__.keys() for phase in ("load", "train"))
        and record["train"]["device_peak_gb"] > 0
        and {"torch", "lightning"} <= record["versions"].keys()
        and {"phase", "module"} <= at.get("train", {}).keys()
    )


def _check_fields(record, kind):
    for field, its in typing.get_type_hints(kind).items():
        if field in record and not _is(record[field], its):
            raise TypeError(f"{field} is not what it must be")


def _is(value, kind):
    """Tells whether a value is of a type, as it is written in Record."""
    origin, inside = typing.get_origin(kind), typing.get_args(kind)
    if typing.is_typeddict(kind):
        if isinstance(value, dict):
            _check_fields(value, kind)
        return isinstance(value, dict)
    if origin in (types.UnionType, typing.Union):
        return any(_is(value, one) for one in inside)
    if origin is dict:
        return isinstance(value, dict) and all(_is(v, inside[1]) for v in value.values())
    if kind is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, kind)


def by_script(records):
    """Returns records by their scripts' names; of those of one script, the last."""
    return {record["script"]: record for record in records}


def folder(record):
    """Returns the folder of a record's script."""
    return record["script"].partition("/")[0]


def setting(record):
    """Writes which model a record is of, and with what inputs, for people."""
    if "max_length" in record:
        return f"{one_line(record['model'])}, {record['max_length']} tokens"
    return f"{one_line(record['model'])} at {record['image_px']} px"


def unit(record):
    """Returns what a record counts: "images" or "texts"."""
    return "texts" if "max_length" in record else "images"


def speed(record):
    """Returns the images or texts per second, None if they were not measured."""
    return record[f"{unit(record)}_per_second"]


def most_per_second(record):
    """Returns how many images or texts per second the bound of a prediction allows, all devices."""
    return record["batch_size"] / record["bound"]["ms"] * 1e3


def least_ms(record):
    """Returns how many milliseconds a GPU takes at least for one image or text, by the bound."""
    return record["bound"]["ms"] * record["world_size"] / record["batch_size"]


def learned(record):
    """Writes the test accuracy for people, or the perplexity."""
    if record["dataset"] == "fake":
        return "noise"
    if "test_perplexity" in record:
        return f"perplexity {quality('perplexity', record['test_perplexity'])}"
    return quality("accuracy", record["test_accuracy"])


def name(record):
    """Returns what to call a record in a table: its script, or the last technique applied."""
    return f"+ {record['technique']}" if record.get("technique") else record["script"]


def on_host(record):
    """Tells whether a training holds more on the host than a few numbers."""
    return (record["train"]["host_peak_gb"] or 0) > 0.01 * record["train"]["device_peak_gb"]


def computes_on_host(record):
    """Tells whether the host computes more of an update than a few numbers, such as the step.

    What it computes takes time that is not in the bound.
    """
    return record["cost"]["moved_on_host_gb"] > 0.01 * record["cost"]["moved_gb"]


def where(record):
    """Returns where in the update a prediction has its peak.

    An example is "backward pass, encoder.layers.encoder_layer_23.mlp.3".
    """
    at = record["peak_at"]["train"]
    return f"{at['phase']} pass, {at['module']}" if at["module"] else at["phase"]


def at_once(record):
    """Returns how many images or texts a device takes in one forward pass."""
    share = record["batch_size"] // (record.get("shares") or record["world_size"])
    return min(record["micro_batch_size"] or share, share)


def breakdown(phase):
    """Returns what a phase held at its peak: (category, GB), largest first, from 0.05 MB on."""
    parts = sorted(phase["breakdown_gb"].items(), key=lambda part: -part[1])
    return [(label, gb) for label, gb in parts if gb >= 5e-5]


def by_model(records):
    """Returns the records in groups of one model each: only these can be compared."""
    names = dict.fromkeys(map(setting, records))
    return [[record for record in records if setting(record) == name] for name in names]


def scale(records):
    """Returns the unit that suits the records' peaks, GB or MB, and how many of it are one GB."""
    most = max(r["train"]["device_peak_gb"] for r in records)
    return ("GB", 1) if most >= 1 else ("MB", 1000)
