"""The answer about a script: what matters first, in at most a dozen lines."""

from emulated_gpu import cards, launch
from emulated_gpu.texts import size
from emulated_gpu.why import fit, pace, times
from emulated_gpu.why.advice import advice

SMALL = 0.01  # of the peak: smaller categories are not shown
MUCH = 0.1  # of what a card needs: what may come on top of it decides
LEAST = 0.01  # of a category: a type of less is not named
PHASES = {"load": "before training", "forward": "forward pass", "backward": "backward pass"}
PHASES |= {"step": "optimizer step", "evaluation": "evaluation"}
LINES = 12  # without --details: as many notes are shown as have room, at least one


def lines(findings, too_small, eager_gb, ranks, args):
    """Return lines of text: the verdict on a script, its memory, its time, and advice.

    Args:
        findings: settings.Findings, of a run with room.
        too_small: a text on its lack of memory on its card, None if there was room.
        eager_gb: its peak without torch.compile(), None if it does not compile.
        ranks: lines about ranks that differ.
    """
    r = findings.record
    gb = args.card_gb
    title = args.card.title if gb == args.card.gb else "A GPU"
    needs = fit.needs(r)
    fits = too_small or f"so {gb - needs:.1f} GB are left"
    cause = what_is_not_seen(findings)
    text = [
        f"{title}, {gb:.4g} GB: your script needs {needs:.2f} GB with CUDA's context, {fits}",
        *cause,
        f"{r['script']}: {what_it_trains(r)}; emulated with torch {r['versions']['torch']}",
        *where_it_is(r),
        on_host(r["process"]),
        *ranks,
        *pace.lines(r),
    ]
    if r["time"]:
        text.append(times.line(r, launch.HOST_US, args.card))
    if eager_gb:
        text.append(
            f"torch.compile took {findings.compile_seconds:.1f} s; without it, "
            f"{size(eager_gb)} would be allocated"
        )
    if not findings.trained:
        text.append("No module was called in training mode: the figures are for the whole script")
    if r["stopped"]:
        text.append(f"Stopped in {r['stopped']}: what comes after it is not in the figures")
    if findings.has_convolutions:
        text.append(
            "cuDNN computes layers of it, with an H200's workspaces: a network that nobody has "
            f"measured reserves up to {fit.CUDNN:.0%} more or less than emulated, as twelve did"
        )
    if findings.trained and not cause:
        text += advice(r, findings.has_convolutions, 0 if too_small else gb - needs)
    room = max(LINES - 1 - len(text), 1)
    notes = r["notes"]
    if fit.of_groups(r) and not cause:
        notes = [cards.groups(r["groups"], r["groups_at"]), *notes]
    shown = notes + findings.of_libraries if args.details else notes[:room]
    text += [f"- {note}" for note in shown]
    if (more := len(notes) - len(shown)) > 0:
        text.append(f"- and {more} more {'notes' if more > 1 else 'note'}: --details")
    return text


def what_it_trains(r):
    """Return what a script trains, on what, and in which precision, as far as that is known."""
    inputs = f"inputs of {r['inputs']}" if r["inputs"] else ""
    per_update = f"{r['batch_size']} {r['unit']} per update" if r["batch_size"] else ""
    return ", ".join(filter(None, (r["model"], inputs, r["precision"], per_update)))


def what_is_not_seen(findings):
    """Return a line on memory that goes on growing, or that is not counted; else no line."""
    r = findings.record
    if findings.grows:
        return [growth(findings)]
    kept = r["evaluation"]
    if kept and (not kept["batches"] or fit.after_evaluation(r) > r["train"]["device_peak_gb"]):
        return [kept_by_evaluation(r)]
    if fit.of_groups(r) > MUCH * fit.needs(r):
        return [cards.groups(r["groups"], r["groups_at"])]
    return []


def kept_by_evaluation(r):
    """Return a line on an evaluation that keeps what it computes, of a record with `evaluation`."""
    kept = r["evaluation"]
    line = f"Evaluation keeps {size(kept['gb'])} of each batch on the GPU"
    line += f", made in {kept['line']}" if kept["line"] else ""
    if kept["batches"]:
        joined = ", while they are joined once more" if kept["joined_gb"] else ""
        batches = f"{kept['batches']:,} batches"
        line += f": {size(fit.after_evaluation(r))} are in use at the end of its {batches}{joined}"
    return (
        f"{line}; move results to the host, as .cpu() or the Trainer's eval_accumulation_steps do"
    )


def growth(findings):
    """Return a line on the memory that grows with every update of a script."""
    what, why = "Memory", "something keeps tensors, as a sum of losses does; loss.item() does not"
    if findings.grows == "reserved":
        what = "Reserved memory"
        why = "it is not used again, as that of a stream which each update makes anew"
    by = f"{what} grows by {size(findings.grows_gb)} with every update"
    return f"{by}, most of it allocated in {findings.grows_at or 'no line of it'}: {why}"


def where_it_is(r):
    """Return lines on the place of a script's peak, and its categories, with their types."""
    where = place(r["peak_at"]["train"], r["steps"] > 0)
    active = size(r["train"]["device_active_gb"])
    held = sorted(r["train"]["breakdown_gb"].items(), key=lambda item: -item[1])
    peak = r["train"]["device_peak_gb"]
    parts = []
    before = []
    if fit.is_before_training(r):
        line = r["peak_at"]["load"]["line"]
        at = f", where the peak is in line {line}" if line else ""
        before.append(f"Before training it needs more: {size(r['load']['device_peak_gb'])}{at}")
    for label, gb in held:
        if gb > SMALL * peak:
            parts.append(f"{label} {size(gb)}{types(r['types_gb'].get(label, {}), gb)}")
    of_types = [part for sizes in r["logits_gb"].values() for part in sizes.items() if part[0]]
    if (gb := sum(gb for _, gb in of_types)) > SMALL * peak:
        sizes = {kind: sum(gb for other, gb in of_types if other == kind) for kind, _ in of_types}
        logits = f"logits, tokens x {r['vocabulary']:,}, {size(gb)}{types(sizes, gb)}"
        parts.append(f"of all that {logits}")
    return [
        *before,
        f"The peak: {where}; {active} active",
        f"It holds: {', '.join(parts)}",
    ]


def place(at, trained):
    """Return the place of a peak: "backward pass, encoder.layers.23.mlp.3; line train.py:9"."""
    # A script without training does nothing before it.
    phase = "" if at["phase"] == "load" and not trained else PHASES[at["phase"]]
    within = ", ".join(filter(None, (phase, at["module"])))
    line = at["line"] and f"line {at['line']}"
    return "; ".join(filter(None, (within, line))) or "not in a line of it"


def types(gb_of_types, gb):
    """Return the types of a category's tensors, with the bytes of each if there are several."""
    known = {name: part for name, part in gb_of_types.items() if name and part > LEAST * gb}
    if len(known) > 1:
        return f" ({', '.join(f'{name} {size(part)}' for name, part in known.items())})"
    return f" {[*known][0]}" if known else ""


def on_host(process):
    """Return a line on the host memory of a script's process."""
    pinned = process["pinned_gb"]
    beside = f"pinned {size(pinned)}" if pinned > 1e-4 else "nothing pinned"
    held = size(process["peak_gb"])
    return f"On the host the process held at most {held}, libraries included; {beside}"


def scarce(findings):
    """Return lines on the allocations of a script's run that found no room on its card."""
    text = []
    if findings.retries:
        text.append(f"PyTorch gave its cache back to make room: {_times(findings.retries)}")
    if findings.errors:
        text.append(
            f"Out-of-memory errors that the script caught: {_times(findings.errors)}; what it does "
            "then is in the figures only if it does so with room, too"
        )
    return text


def _times(count):
    return "once" if count == 1 else f"{count} times"
