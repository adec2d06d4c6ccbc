"""The ways to a batch size on a card: which scripts fit, with how much at once, and how fast.

In 11 combinations of techniques are tried, too, from the one that adds least to an update on. The
first that takes its whole share of the batch at once ends the search: more techniques would make it
slower. (Offloading may make its bound shorter, because the step on the host is in no bound. So the
advice takes offloading only if nothing else fits.)
"""

import dataclasses

from shared.predict.arguments import one_by_one
from shared.predict.fits import with_way
from shared.predict.jobs import run_jobs
from shared.records import scripts
from shared.records.views import aligned, folder, listed, name, unit

NUMBERS = {1: "one", 2: "two", 4: "four", 8: "eight"}
LEAST_GB = 0.1  # what is worth a word


def find(jobs, card):
    """Returns the predictions of scripts, each with "way", and with "combinations" if it has any.

    Args:
        jobs: list of (script's name, jobs.Wanted).
        card: cards.Card.
    """
    modules = [scripts.get(script).load() for script, _ in jobs]
    sizes = {}  # of the last script of each kind: from 04 on all have the same
    for module, (_, options) in zip(modules, jobs):
        sizes[module.TASK] = options.batch_size or module.BATCH_SIZE
    batches = [sizes[module.TASK] for module in modules]
    records = run_jobs([(with_way, *job, card.gb, size) for job, size in zip(jobs, batches)])
    searches = []  # a record, the name of what adds nothing, and what is still to be tried
    for (script, options), record, size in zip(jobs, records, batches):
        its = scripts.get(script)
        if its.file != "train" or not its.path.with_name("one_by_one.py").exists():
            continue
        record["combinations"], module = [], one_by_one(script)
        for n in sorted({1, record["world_size"]}):
            tries = [
                (script, dataclasses.replace(options, devices=n, techniques=c), card.gb, size)
                for c in module.combinations(n, card.bf16)
                # All techniques are the script itself.
                if c != module.TOGETHER or n != record["world_size"]
            ]
            searches += [(record, module.FEW, tries)] if tries else []
    while searches:
        tried = [r["way"] for r in run_jobs([(with_way, *s[2].pop(0)) for s in searches])]
        for (record, few, _), way in zip(searches, tried):
            if way["at_once"] == way["share"]:
                way["techniques"].remove(few)
            record["combinations"].append(way)
        searches = [s for s, w in zip(searches, tried) if s[2] and w["at_once"] < w["share"]]
    return records


def ways(records):
    """Returns the ways of find()'s records: a list of (what to call it, a record's Way)."""
    found = []
    for r in records:
        found.append((name(r), r["way"]))
        for way in r.get("combinations", ()):
            found.append((f"{folder(r)}: {listed(way['techniques'])}", way))
    return found


def speed(way):
    """Returns how many images or texts per second a way's bound allows, on all its GPUs."""
    return way["batch_size"] / way["bound"]["ms"] * 1e3


def offloads(way):
    """Tells whether an update copies more than a few numbers between device and host."""
    its = way["bound"]
    copying = sum(part.get("host link", 0) for part in (its["parts_ms"], its["beside_ms"]))
    return copying > 0.01 * its["ms"]


def table(records, card):
    """Returns the ways of one model's records as lines of text, and advice."""
    what, found = unit(records[0]), ways(records)
    size = found[-1][1]["batch_size"]
    above = f"Ways to {size} {what} per update on {card.title}, {card.gb:.4g} GB:"
    return [above, *aligned(heading(what), rows(found)), "", *advice(found, what, card)]


def heading(what):
    """Returns the heading of rows(); what is "images" or "texts"."""
    return "way", "GPUs", "at once", "each needs GB", f"at most {what}/s", "bounded by"


def rows(found):
    """Returns rows of texts: the ways of one GPU first, and the fastest first.

    Args:
        found: from ways().
    """

    def row(words, way):
        at_once, fast = str(way["at_once"]), (f"{speed(way):,.0f}", way["bound"]["by"])
        if not way["at_once"]:
            at_once = f"no {way['missing']}" if way["missing"] else "none fits"
            fast = ("", "")
        return words, str(way["world_size"]), at_once, f"{way['needs_gb']:.2f}", *fast

    def place(way):
        return way["world_size"], not way["at_once"], -speed(way)

    return [row(*its) for its in sorted(found, key=lambda its: place(its[1]))]


def advice(found, what, card):
    """Returns a line for each number of GPUs: the fastest way, and the fastest that needs less.

    One that offloads is not called the fastest if another fits: its bound leaves out the most.

    Args:
        found: from ways().
        what: "images" or "texts".
        card: cards.Card.
    """
    lines = []
    for n in sorted({way["world_size"] for _, way in found}):
        on = f"On {NUMBERS.get(n, n)} {card.title}"
        mine = [(words, way) for words, way in found if way["world_size"] == n and way["at_once"]]
        if not mine:
            lines.append(f"{on}: none of these fits, or can run.")
            continue
        words, best = max(mine, key=lambda w: (not offloads(w[1]), speed(w[1])))
        line = (
            f"{on}: {words} with {best['at_once']} {what} at once is the fastest, at most "
            f"{speed(best):,.0f} {what}/s{' together' if n > 1 else ''}; it needs "
            f"{best['needs_gb']:.1f} of {card.gb:.1f} GB."
        )
        leaner = [w for w in mine if w[1]["needs_gb"] < best["needs_gb"] - LEAST_GB]
        if leaner:
            words, other = max(leaner, key=lambda w: speed(w[1]))
            freed, slower = best["needs_gb"] - other["needs_gb"], 1 - speed(other) / speed(best)
            price = f"{slower:.0%} slower" if slower >= 0.005 else "and is as fast by the bound"
            price += ", not counting its step on the host" if offloads(other) else ""
            line += f" {words} with {other['at_once']} would free {freed:.1f} GB, {price}."
        lines.append(line)
    return lines
