"""Configurations for a batch size on a card: which scripts fit, and their micro-batches.

A run goes on with updates of other sizes, which show how many images or texts at once fit into the
card's memory. Where that is too little, the script runs once more on a card with no more memory:
PyTorch gives idle memory back, and what it has may suffice.

In 11, combinations of techniques are tried, too, beginning with the one that adds least to an
update. The first that takes its whole share of the batch at once ends the search: more techniques
would make it slower.
"""

import dataclasses

import torch
from torch.utils._pytree import tree_map_only

from shared.lab.predict import tables
from shared.lab.predict.bound import bound
from shared.lab.predict.estimate import work
from shared.lab.predict.jobs import one_by_one, run_jobs
from shared.lab.predict.stage import predicted, with_most
from shared.lab.predict.tables import tight
from shared.lab.records import scripts
from shared.lab.records.formats import aligned, listed
from shared.lab.records.reading import folder, name, unit

MOST = 1_000_000  # images at once; the search stops here
STEADY = 2  # updates of a size; the second is like any later one


class Tries:
    """Updates of other sizes, which a run makes after those of its script.

    search(stage, share) is a generator: it is given the running stage.Stage and a process's share
    of its batch. It yields (share, at once), and is sent the GB that PyTorch reserves for updates
    with these. `found` is what it returns; `needed` and `bounds` are {at once: GB} and
    {at once: Bound}.
    """

    def __init__(self, search):
        self._search, self.found, self.needed, self.times = search, None, {}, {}

    def batches(self, stage, loader):
        """Yield batches for a running stage.Stage; their inputs are all like the loader's first."""
        first = tree_map_only(torch.Tensor, lambda t: t[:1], next(iter(loader)))
        search = self._search(stage, loader.batch_size)
        share, at_once = next(search)
        while True:
            if stage.micro:
                stage.script.MICRO_BATCH_SIZE = at_once
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
            for _ in range(STEADY):
                batch = [tree_map_only(torch.Tensor, lambda t: repeated(t, share), first)]
                stage.watch.cost.start()  # without the copies that make up the batch
                with stage.watch.at_work():
                    yield batch.pop()
            self.needed[at_once] = torch.cuda.max_memory_reserved() / 1e9
            done = stage.watch.cost.operations, stage.options.card.rates
            self.times[at_once] = {"bound": bound(*done), "work_ms": work(*done)}
            try:
                share, at_once = search.send(self.needed[at_once])
            except StopIteration as end:
                self.found = end.value
                return


def repeated(tensor, n):
    """Return a tensor of one example as one of n."""
    return tensor.repeat(n, *[1] * (tensor.ndim - 1))


def with_fits(script, options, card_gb):
    """Return a record, with "fits": whether there is room on a card, and the largest micro-batch.

    A stage without micro-batches takes its batch at once. The others get a batch of at least two
    micro-batches per process, so that the gradients of the first exist during the forward pass of
    the second.
    """

    def largest(stage, share):
        left = card_gb - tables.set_aside(stage.devices)
        steps = search(left, stage.micro or share)
        return (yield from sized(steps, lambda n: max(2 * n, share) if stage.micro else n))

    tries = Tries(largest)
    record, *_ = predicted(script, with_most(script, options), tries.batches)
    needs = tables.needs(record)
    known = {"card_gb": card_gb, "needs_gb": needs, "fits": needs <= card_gb}
    return {**record, "fits": {**known, "largest_micro_batch": tries.found}}


def with_way(script, options, card_gb, batch_size):
    """Return a record, with "way": its largest micro-batch with room, for a batch on a card."""

    def largest(stage, own_share):
        left = card_gb - tables.set_aside(stage.devices)
        own_batch = max(stage.script.BATCH_SIZE, stage.devices)
        share = max(batch_size * own_share // own_batch, 1)
        most = min(options.micro_batch_size or share, share)
        if torch.cuda.memory_allocated() / 1e9 > left:  # what stays between updates is too much
            return share, (yield from sized(at_once(left, 1), lambda n: 1))
        steps = search(left, most, most) if stage.micro else at_once(left, share)
        return share, (yield from sized(steps, lambda n: share))

    tries = Tries(largest)
    record, *_ = predicted(script, options, tries.batches)
    share, fitting = tries.found
    shown = fitting or min(tries.needed)
    reserved = max(tries.needed[shown], record["load"]["device_reserved_gb"])
    way = {
        "card_gb": card_gb,
        "needs_gb": reserved + tables.set_aside(record["world_size"]),
        "host_gb": record["train"]["host_peak_gb"],
        "world_size": record["world_size"],
        "batch_size": batch_size,
        "share": share,
        "at_once": fitting,
        **tries.times[shown],
        "techniques": list(options.techniques or ()),
    }
    return {**record, "way": way}


def sized(steps, share_of):
    """Let a generator of sizes at once, such as search(), be one of (share, at once)."""
    needed = None
    while True:
        try:
            n = steps.send(needed)
        except StopIteration as end:
            return end.value
        needed = yield share_of(n), n


def at_once(budget, share):
    """Return a share if it fits as a whole, else 0; yields and is sent as search() is."""
    return share if (yield share) <= budget else 0


def search(budget, guess, most=MOST):
    """Return the largest n from 1 to most that needs at most a budget, 0 if there is none.

    It yields n, and is sent what n needs. The search begins at `guess` and extrapolates through the
    last two points, because this is nearly linear. If that takes long, it bisects instead.
    """
    fits, too_many, points = 0, None, []
    while fits < most and (too_many is None or too_many - fits > 1):
        points.append((guess, (yield guess)))
        if points[-1][1] <= budget:
            fits = guess
        else:
            too_many = guess
        if len(points) == 1:
            guess = 2 * fits if fits else guess // 2
        elif too_many and len(points) > 8:
            guess = (fits + too_many) // 2
        else:
            (a, needs_a), (b, needs_b) = points[-2:]
            slope = max((needs_b - needs_a) / (b - a), 1e-9)
            guess = min(int(b + (budget - needs_b) / slope), 32 * b)
        guess = min(max(guess, fits + 1), too_many - 1 if too_many else most)
    return fits


def runs_on(script, options, card_gb):
    """Return whether a script runs on a card with no more memory than it has."""
    try:
        options = with_most(script, options)
        predicted(script, dataclasses.replace(options, card_gb=card_gb))
    except torch.OutOfMemoryError:
        return False
    return True


def fits(jobs, card_gb):
    """Return the records of jobs, (script, Wanted), each with "fits" for a card."""
    records = run_jobs([(with_fits, *job, card_gb) for job in jobs])
    doubtful = [(r, job) for r, job in zip(records, jobs) if not r["fits"]["fits"]]
    tightly = run_jobs([(runs_on, *job, card_gb) for _, job in doubtful]) if doubtful else ()
    for (record, _), does in zip(doubtful, tightly):
        record["fits"]["fits"] = does
    return records


def with_tight_ways(records, jobs):
    """Let ways in which not even one example fits with room be tight ones, if they run.

    `jobs` are those of with_way() that made the records.
    """
    doubtful = [(r, job) for r, job in zip(records, jobs) if not r["way"]["at_once"]]
    tries = []
    for record, (script, options, card_gb, batch_size) in doubtful:
        least = 1 if record["micro_batch_size"] else record["way"]["share"]
        smallest = dataclasses.replace(options, batch_size=batch_size, micro_batch_size=1)
        tries.append((record, least, (runs_on, script, smallest, card_gb)))
    does = run_jobs([job for *_, job in tries]) if tries else ()
    for (record, least, _), runs in zip(tries, does):
        record["way"]["at_once"] = least if runs else 0
    return records


def find(jobs, card):
    """Return the records of jobs, each with "way", and with "combinations" if it has any."""
    modules = [scripts.get(script).load() for script, _ in jobs]
    sizes = {}  # of the last script of each task: all from 04 on have the same
    for module, (_, options) in zip(modules, jobs):
        devices = module.DEVICES > 1 and options.devices or module.DEVICES
        sizes[module.TASK] = max(options.batch_size or module.BATCH_SIZE, devices)
    batches = [sizes[module.TASK] for module in modules]
    wanted = [(*job, card.gb, size) for job, size in zip(jobs, batches)]
    records = with_tight_ways(run_jobs([(with_way, *job) for job in wanted]), wanted)
    searches = []  # (record, name of the technique that adds nothing, tries to come)
    for (script, options), record, size in zip(jobs, records, batches):
        its = scripts.get(script)
        if its.file != "train" or not its.path.with_name("one_by_one.py").exists():
            continue
        record["combinations"], module = [], one_by_one(script)
        # Their own updates take the whole share at once, as the search does first: fewer passes.
        options = dataclasses.replace(options, micro_batch_size=options.micro_batch_size or size)
        alone = () if weights_gb(record) > card.gb else (1,)
        for n in sorted({*alone, record["world_size"]}):
            tries = [
                (script, dataclasses.replace(options, devices=n, techniques=c), card.gb, size)
                for c in module.combinations(n, card.bf16)
                # All techniques together are the script itself.
                if c != module.TOGETHER or n != record["world_size"]
            ]
            searches += [(record, module.FEW, tries)] if tries else []
    while searches:
        wanted = [tries.pop(0) for *_, tries in searches]
        found = with_tight_ways(run_jobs([(with_way, *job) for job in wanted]), wanted)
        tried = [record["way"] for record in found]
        for (record, few, _), way in zip(searches, tried):
            if way["at_once"] == way["share"]:
                way["techniques"].remove(few)
            record["combinations"].append(way)
        enough = [w["at_once"] == w["share"] and not tight(w) for w in tried]
        searches = [s for s, its in zip(searches, enough) if s[2] and not its]
    return records


def weights_gb(record):
    """Return the size of all weights, of which each process has a part, on its GPU or host."""
    train = record["train"]
    held = (train["breakdown_gb"], train["host_breakdown_gb"] or {})
    return record["world_size"] * sum(part.get("parameters", 0) for part in held)


def ways(records):
    """Return the configurations in find()'s records: [(description, a record's Way), ...]."""
    found = []
    for r in records:
        found.append((name(r), r["way"]))
        for way in r.get("combinations", ()):
            alone = way["world_size"] == 1  # then FSDP shards nothing
            named = (t for t in way["techniques"] if not (alone and t.startswith("shard ")))
            found.append((f"{folder(r)}: {listed(named)}", way))
    return found


def table(records, card):
    """Return the configurations of one model's records, and advice, as lines of text."""
    what, found = unit(records[0]), ways(records)
    size = found[-1][1]["batch_size"]
    above = f"Configurations for {size} {what} per update on {card.title}, {card.gb:.4g} GB:"
    fitting = [way for _, way in found if way["at_once"]]
    below = [f"Fits {tables.TIGHTLY}."] if any(map(tight, fitting)) else []
    below.append(f"The more {what} at once, the faster: shared/lab/predict/README.md")
    if any(card.gb - way["needs_gb"] < tables.OPEN_GB for way in fitting):
        below.append(f"With less than {tables.OPEN_GB} GB to spare it may fail: {tables.ALLOWED}")
    return [above, *aligned(heading(what), rows(found)), *below]


def heading(what):
    """Return the column headings of rows(); `what` is "images" or "texts"."""
    return "configuration", "GPUs", f"{what} at once", "each takes GB"


def rows(found):
    """Return a table row for each of ways(), by number of GPUs.

    Then those with memory to spare come first, and those with the most images or texts at once:
    what a pass costs the host does not depend on their number.
    """

    def row(words, way):
        at_once = f"{way['at_once']}{', tightly' * tight(way)}"
        if not way["at_once"]:
            at_once = "none fits"
        return words, str(way["world_size"]), at_once, f"{way['needs_gb']:.2f}"

    def place(its):
        _, way = its
        spare = way["card_gb"] - way["needs_gb"] >= tables.OPEN_GB
        return way["world_size"], not way["at_once"], not spare, -way["at_once"], way["needs_gb"]

    return [row(*its) for its in sorted(found, key=place)]
