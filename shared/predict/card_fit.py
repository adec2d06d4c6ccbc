"""Configurations for a batch size on a card: which scripts fit, their micro-batches, their speed.

Simulated updates show how many images or texts at once fit into the card's memory.

In 11, combinations of techniques are tried, too, beginning with the one that adds least to an
update. The first that takes its whole share of the batch at once ends the search: more techniques
would make it slower. (Offloading may lower the bound, because no bound includes the step on the
host. So the advice chooses offloading only if nothing else fits.)
"""

import dataclasses

from shared.predict import tables
from shared.predict.jobs import one_by_one, run_jobs
from shared.predict.simulation import predicted
from shared.predict.tables import tight
from shared.records import scripts
from shared.records.views import aligned, folder, listed, name, unit
from shared.records.views import most_per_second as speed

NUMBERS = {1: "one", 2: "two", 4: "four", 8: "eight"}
LEAST_GB = 0.1  # a smaller difference is not mentioned
MOST = 1_000_000  # images at once; the search stops here


def with_fits(script, options, card_gb):
    """Return a prediction, with "fits": whether it fits on a card, and the largest micro-batch.

    A stage without micro-batches takes its batch at once. The others get a batch of at least two
    micro-batches per process, so that the gradients of the first exist during the forward pass of
    the second.
    """
    record, simulation, _ = predicted(script, options)
    args, left = simulation.args, card_gb - tables.allowance(record)
    micro = args.micro_batch_size
    _, enough = sizes(record, simulation, simulation.ledger.events, left)

    def needed(n):
        least = n * args.shares * (2 if micro else 1)
        batch_size = max(least, args.batch_size) if micro else least
        events = simulation.anew(batch_size, micro and n, options.updates)
        return sizes(record, simulation, events, left)[1]

    fits = {
        "card_gb": card_gb,
        "needs_gb": tables.needs(record),
        "fits": enough <= left,
        "largest_micro_batch": search(needed, left, micro or args.batch_size // args.shares),
    }
    return {**record, "fits": fits}


def with_way(script, options, card_gb, batch_size):
    """Return a prediction, with "way": its fastest configuration for a batch size on a card."""
    record, simulation, _ = predicted(script, options)
    args, left = simulation.args, card_gb - tables.allowance(record)
    share, micro = max(batch_size // args.shares, 1), args.micro_batch_size
    most = min(options.micro_batch_size or share, share)
    found = {}  # {n at once: (*sizes(), bound)}
    if batch_size == args.batch_size:
        its = sizes(record, simulation, simulation.ledger.events, left)
        found[min(micro or share, share)] = *its, record["bound"]

    def tried(n):
        if n not in found:
            its = sizes(record, simulation, simulation.anew(batch_size, micro and n), left)
            found[n] = *its, simulation.bound()
        return found[n]

    def largest(which):
        if micro:
            return search(lambda n: tried(n)[which], left, most, most)
        return share if tried(share)[which] <= left else 0

    at_once = largest(0) or largest(1)  # tightly only if nothing fits otherwise
    gb, _, bound = found[at_once or min(found)]
    way = {
        "card_gb": card_gb,
        "needs_gb": gb + tables.allowance(record),
        "host_gb": record["train"]["host_peak_gb"],
        "world_size": record["world_size"],
        "batch_size": batch_size,
        "share": share,
        "at_once": at_once,
        "bound": bound,
        "techniques": list(options.techniques or ()),
    }
    return {**record, "way": way}


def sizes(record, simulation, events, left):
    """Return the GB that PyTorch reserves for a log if there is room, and the GB that suffice.

    Where it would reserve more than is left on the card, PyTorch gives idle memory back. If that is
    enough, the allocated GB suffice; they are nearly linear in the batch, as search() expects.
    """
    replayed = simulation.replay(events, simulation.loaded)
    reserved = max(replayed.allocator.peak / 1e9, record["load"]["device_reserved_gb"])
    enough = reserved > left and simulation.replay(events, simulation.loaded, limit_gb=left)
    return reserved, enough.peak / 1e9 if enough else reserved


def search(needed, budget, guess, most=MOST):
    """Return the largest n from 1 to most with needed(n) <= budget, 0 if there is none.

    The search begins at `guess` and extrapolates through the last two points, because needed() is
    nearly linear. If that takes long, it bisects instead.
    """
    fits, too_many, points = 0, None, []
    while fits < most and (too_many is None or too_many - fits > 1):
        points.append((guess, needed(guess)))
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


def find(jobs, card):
    """Return the predictions of jobs, each with "way", and with "combinations" if it has any."""
    modules = [scripts.get(script).load() for script, _ in jobs]
    sizes = {}  # of the last script of each task: all from 04 on have the same
    for module, (_, options) in zip(modules, jobs):
        sizes[module.TASK] = options.batch_size or module.BATCH_SIZE
    batches = [sizes[module.TASK] for module in modules]
    records = run_jobs([(with_way, *job, card.gb, size) for job, size in zip(jobs, batches)])
    searches = []  # (record, name of the technique that adds nothing, tries to come)
    for (script, options), record, size in zip(jobs, records, batches):
        its = scripts.get(script)
        if its.file != "train" or not its.path.with_name("one_by_one.py").exists():
            continue
        record["combinations"], module = [], one_by_one(script)
        for n in sorted({1, record["world_size"]}):
            tries = [
                (script, dataclasses.replace(options, devices=n, techniques=c), card.gb, size)
                for c in module.combinations(n, card.bf16)
                # All techniques together are the script itself.
                if c != module.TOGETHER or n != record["world_size"]
            ]
            searches += [(record, module.FEW, tries)] if tries else []
    while searches:
        tried = [r["way"] for r in run_jobs([(with_way, *s[2].pop(0)) for s in searches])]
        for (record, few, _), way in zip(searches, tried):
            if way["at_once"] == way["share"]:
                way["techniques"].remove(few)
            record["combinations"].append(way)
        enough = [w["at_once"] == w["share"] and not tight(w) for w in tried]
        searches = [s for s, its in zip(searches, enough) if s[2] and not its]
    return records


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


def offloads(way):
    """Return whether an update copies more than a few numbers between device and host."""
    its = way["bound"]
    copying = sum(part.get("host link", 0) for part in (its["parts_ms"], its["beside_ms"]))
    return copying > 0.01 * its["ms"]


def table(records, card):
    """Return the configurations of one model's records, and advice, as lines of text."""
    what, found = unit(records[0]), ways(records)
    size = found[-1][1]["batch_size"]
    above = f"Configurations for {size} {what} per update on {card.title}, {card.gb:.4g} GB:"
    below = [f"Fits {tables.TIGHTLY}."] if any(w["at_once"] and tight(w) for _, w in found) else []
    return [above, *aligned(heading(what), rows(found)), *below, "", *advice(found, what, card)]


def heading(what):
    """Return the column headings of rows(); `what` is "images" or "texts"."""
    return "configuration", "GPUs", "at once", "each takes GB", f"at most {what}/s", "bounded by"


def rows(found):
    """Return a table row for each of ways(), by number of GPUs, then the fastest first."""

    def row(words, way):
        at_once = f"{way['at_once']}{', tightly' * tight(way)}"
        fast = f"{speed(way):,.0f}", way["bound"]["by"]
        if not way["at_once"]:
            at_once, fast = "none fits", ("", "")
        return words, str(way["world_size"]), at_once, f"{way['needs_gb']:.2f}", *fast

    def place(its):
        _, way = its
        return way["world_size"], not way["at_once"], -speed(way)

    return [row(*its) for its in sorted(found, key=place)]


def advice(found, what, card):
    """Return a line per number of GPUs: the fastest configuration, and the fastest leaner one.

    One that offloads, or fits tightly, is not called the fastest if another fits: its bound leaves
    out the most.
    """
    lines = []
    for n in sorted({way["world_size"] for _, way in found}):
        on = f"On {NUMBERS.get(n, n)} {card.title}"
        mine = [(words, way) for words, way in found if way["world_size"] == n and way["at_once"]]
        if not mine:
            few = "; 11_llm/lora and 11_llm/qlora train few weights, --fits tells of them"
            lines.append(f"{on}: none of these fits{few * (what == 'texts')}.")
            continue
        words, best = max(mine, key=lambda w: (not offloads(w[1]), not tight(w[1]), speed(w[1])))
        needs = f"needs {best['needs_gb']:.1f} of {card.gb:.1f} GB"
        line = (
            f"{on}: {words} with {best['at_once']} {what} at once is the fastest, at most "
            f"{speed(best):,.0f} {what}/s{' together' if n > 1 else ''}; "
            f"it {'fits tightly' if tight(best) else needs}."
        )
        if offloads(best) and best.get("host_gb"):
            line += f" The host holds {n * best['host_gb']:.1f} GB besides."
        leaner = [w for w in mine if w[1]["needs_gb"] < best["needs_gb"] - LEAST_GB]
        if leaner:
            words, other = max(leaner, key=lambda w: speed(w[1]))
            freed, slower = best["needs_gb"] - other["needs_gb"], 1 - speed(other) / speed(best)
            price = f"{slower:.0%} slower" if slower >= 0.005 else "and is as fast by the bound"
            price += ", not counting its step on the host" if offloads(other) else ""
            line += f" {words} with {other['at_once']} would free {freed:.1f} GB, {price}."
        lines.append(line)
    return lines
