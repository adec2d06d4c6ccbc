"""Configurations for a batch size on a card: which scripts fit, and their micro-batches.

A run goes on with updates of other sizes, which show how many images or texts at once fit into the
card's memory. If none fits, the script runs once more on a card of exactly that size: PyTorch then
frees idle blocks of its cache, and the memory may suffice.

In 11, combinations of techniques are tried, too, beginning with the one that adds least to an
update. The first that takes its whole share of the batch at once ends the search: more techniques
would make it slower.
"""

import dataclasses

import torch

from shared.lab.predict import tables, techniques
from shared.lab.predict.jobs import Failed, attempts
from shared.lab.predict.sizes import with_fits, with_way
from shared.lab.predict.stage import predicted, with_most
from shared.lab.predict.tables import tight
from shared.lab.records import scripts
from shared.lab.records.formats import aligned, listed
from shared.lab.records.reading import folder, name, unit


def runs_on(script, options, card_gb):
    """Return whether a script runs on a card with so many GB, where idle memory is given back."""
    try:
        # The rank that needs most is found while there is room; only then is the card small.
        options = with_most(script, options)
        predicted(script, dataclasses.replace(options, card_gb=card_gb))
    except torch.OutOfMemoryError:
        return False
    return True


class Runs:
    """Runs of jobs, some of which may fail: the results of the successful ones are kept.

    `errors` are those of failed runs; once all is done, `failed` is a Failed, or None.
    """

    def __init__(self):
        self.errors = []

    def results(self, jobs):
        """Return the results of jobs, with None for each that failed."""
        every = attempts(jobs) if jobs else ()
        self.errors += (each for each in every if isinstance(each, Exception))
        return [None if isinstance(each, Exception) else each for each in every]

    @property
    def failed(self):
        """A Failed with the errors so far, None without errors."""
        return Failed(self.errors) if self.errors else None


def fits(jobs, card_gb):
    """Return the records of jobs, (script, Wanted), each with "fits" for a card, and a Failed.

    The Failed is None if no job failed.

    Raises:
        Failed: all of them failed.
    """
    runs = Runs()
    records = runs.results([(with_fits, *job, card_gb) for job in jobs])
    done = [(r, job) for r, job in zip(records, jobs) if r]
    if not done:
        raise runs.failed
    # On the card itself, PyTorch gives idle memory back before it fails.
    doubtful = [(r, job) for r, job in done if not r["fits"]["fits"]]
    answers = runs.results([(runs_on, *job, card_gb) for _, job in doubtful])
    for (record, _), answer in zip(doubtful, answers):
        record["fits"]["fits"] = bool(answer)
    return [r for r, _ in done], runs.failed


def with_ways(jobs, runs):
    """Return the records of jobs, the arguments of with_way(), each with "way", None if it failed.

    Configurations that do not fit with memory to spare run again on a card of the real size; those
    that succeed fit tightly, with the fewest examples at once.
    """
    records = runs.results([(with_way, *job) for job in jobs])
    doubtful = [(r, job) for r, job in zip(records, jobs) if r and not r["way"]["at_once"]]
    on_card = []
    for _, (script, options, card_gb, batch_size) in doubtful:
        smallest = dataclasses.replace(options, batch_size=batch_size, micro_batch_size=1)
        on_card.append((runs_on, script, smallest, card_gb))
    for (record, _), has_run in zip(doubtful, runs.results(on_card)):
        if has_run:
            # Without micro-batches, what ran was the whole share.
            record["way"]["at_once"] = 1 if record["micro_batch_size"] else record["way"]["share"]
    return records


def find(jobs, card):
    """Return the records of jobs, each with "way", and a Failed, or None.

    They have "combinations", too, if there are any.

    Raises:
        Failed: all of them failed.
    """
    runs = Runs()
    sizes = batch_sizes(jobs)
    records = with_ways([(*job, card.gb, size) for job, size in zip(jobs, sizes)], runs)
    if not any(records):
        raise runs.failed
    searches = []
    for (script, options), record, size in zip(jobs, records, sizes):
        if record and techniques.has_steps(script):
            record["combinations"] = []
            searches += combinations(script, options, record, card, size)
    while searches:
        # The next combination of each search, so that they run side by side.
        tried = with_ways([search.jobs.pop(0) for search in searches], runs)
        for search, record in zip(searches, tried):
            if record:
                search.add(record["way"])
        searches = [search for search in searches if search.jobs and not search.is_over]
    return [record for record in records if record], runs.failed


def batch_sizes(jobs):
    """Return the batch size for each job: that of the last script with the same task.

    All scripts from 04 on have the same batch size. Those before 04 have a larger one, and could
    not be compared with the others.
    """
    modules = [scripts.get(script).load() for script, _ in jobs]
    size_of_task = {}
    for module, (_, options) in zip(modules, jobs):
        # Only scripts for several GPUs take another number, and each GPU needs an example.
        devices = module.DEVICES
        if devices > 1:
            devices = options.devices or devices
        size_of_task[module.TASK] = max(options.batch_size or module.BATCH_SIZE, devices)
    return [size_of_task[module.TASK] for module in modules]


class Search:
    """A search for the first combination of techniques that takes its whole share at once.

    `jobs` are those for with_way() that are left.
    """

    def __init__(self, record, jobs):
        self._record = record
        self.jobs = jobs
        self.is_over = False

    def add(self, way):
        """Add the result of a combination to the record."""
        takes_all = way["at_once"] == way["share"]
        if takes_all:  # then micro-batches change nothing
            way["techniques"].remove(techniques.FEW)
        self._record["combinations"].append(way)
        # What fits tightly is slower, so a combination with more room may be better.
        self.is_over = takes_all and not tight(way)


def combinations(script, options, record, card, size):
    """Return the Searches for one GPU and for the number of GPUs of a record."""
    # Their own updates take the whole share at once, as the search does first: fewer passes.
    options = dataclasses.replace(options, micro_batch_size=options.micro_batch_size or size)
    numbers = {record["world_size"]}
    if weights_gb(record) <= card.gb:  # else no combination can help one GPU
        numbers.add(1)
    searches = []
    for devices in sorted(numbers):
        jobs = []
        for chosen in techniques.combinations(devices, card.bf16):
            # All techniques together are the script itself, which has a way already.
            if chosen == techniques.TOGETHER and devices == record["world_size"]:
                continue
            wanted = dataclasses.replace(options, devices=devices, techniques=chosen)
            jobs.append((script, wanted, card.gb, size))
        if jobs:
            searches.append(Search(record, jobs))
    return searches


def weights_gb(record):
    """Return the GB of all weights, of which each process has a part, on its GPU or host."""
    train = record["train"]
    breakdowns = [train["breakdown_gb"], train["host_breakdown_gb"] or {}]
    return record["world_size"] * sum(gb.get("parameters", 0) for gb in breakdowns)


def ways(records):
    """Return the configurations in find()'s records: [(description, a record's Way), ...]."""
    configurations = []
    for record in records:
        configurations.append((name(record), record["way"]))
        for way in record.get("combinations", ()):
            names = way["techniques"]
            if way["world_size"] == 1:  # FSDP shards nothing
                names = [technique for technique in names if technique != techniques.SHARD]
            configurations.append((f"{folder(record)}: {listed(names)}", way))
    return configurations


def table(records, card):
    """Return the configurations of one model's records, and advice, as lines of text."""
    examples = unit(records[0])
    configurations = ways(records)
    # Any would do: one model has one task, so one batch size (see batch_sizes()).
    _, last = configurations[-1]
    size = last["batch_size"]
    above = f"Configurations for {size} {examples} per update on {card.title}, {card.gb:.4g} GB:"
    fitting = [way for _, way in configurations if way["at_once"]]
    below = []
    if any(map(tight, fitting)):
        below.append(f"Fits {tables.TIGHTLY}.")
    below.append("The fastest with room first, by its emulated time: shared/lab/predict/README.md")
    if any(way["on_host"] for way in fitting):
        below.append("At least: the host computes a part, which takes it an unknown time.")
    if not all(map(has_room, fitting)):
        below.append(f"With less than {tables.OPEN_GB} GB to spare it may fail: {tables.ALLOWED}")
    return [above, *aligned(heading(examples), rows(configurations)), *below]


def has_room(way):
    """Return whether OPEN_GB or more are left on the card, so that the answer is reliable."""
    return way["card_gb"] - way["needs_gb"] >= tables.OPEN_GB


def heading(examples):
    """Return the column headings of rows(); `examples` is "images" or "texts"."""
    return "configuration", "GPUs", f"{examples} at once", "each takes GB", "ms per update"


def rows(configurations):
    """Return a table row for each of ways(), ordered by number of GPUs.

    Within a number, configurations with memory to spare come first, then by time for the batch,
    which is the same for all. Times that leave out computation on the host come after the others.
    """

    def row(description, way):
        at_once = str(way["at_once"] or "none fits")
        if way["at_once"] and tight(way):
            at_once += ", tightly"
        ms = f"{'at least ' if way['on_host'] else ''}{way['time']['ms']:,.0f}"
        return description, str(way["world_size"]), at_once, f"{way['needs_gb']:.2f}", ms

    def place(configuration):
        _, way = configuration
        fits = way["at_once"] > 0
        fast = way["on_host"], way["time"]["ms"], way["needs_gb"]
        return way["world_size"], not fits, not has_room(way), *fast

    return [row(*configuration) for configuration in sorted(configurations, key=place)]
