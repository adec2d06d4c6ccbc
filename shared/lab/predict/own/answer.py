"""The text of a prediction of a user's script: the answer first, in at most a dozen lines."""

from emulated_gpu import launch
from shared.lab.predict import pace, tables, times
from shared.lab.predict.advice import advice
from shared.lab.records import formats
from shared.lab.records.reading import setting

SMALL = 0.01  # of the peak: smaller categories are not shown
LEAST = 0.01  # of a category: a type of less is not named
LINES = 12  # without --details: as many notes are shown as have room, at least one


def lines(findings, too_small, eager_gb, ranks, args):
    """Return lines of text: the verdict on a script, its memory, its time, and advice.

    Args:
        findings: own.settings.Findings, of a run with room.
        too_small: a text on its lack of memory on its card, None if there was room.
        eager_gb: its peak without torch.compile(), None if it does not compile.
        ranks: lines about ranks that differ.
    """
    r = findings.record
    gb = args.card_gb
    title = args.card.title if gb == args.card.gb else "A GPU"
    needs = tables.needs(r)
    fits = too_small or f"{gb - needs:.1f} GB are left"
    text = [
        f"{title}, {gb:.4g} GB: with CUDA's context, {needs:.2f} GB if there is room: {fits}",
        f"{r['script']}: {setting(r)}, {r['precision']}, {r['batch_size']} {r['unit']} per update; "
        f"emulated with torch {r['versions']['torch']}",
        *where_it_is(r),
        on_host(r["process"]),
        *ranks,
        *pace.lines(r),
    ]
    if r["time"]:
        text.append(times.line(r["time"], launch.HOST_US, args.card, r["world_size"]))
    if eager_gb:
        text.append(
            f"torch.compile took {findings.compile_seconds:.1f} s; without it, "
            f"{formats.size(eager_gb)} would be allocated"
        )
    if not findings.trained:
        text.append("No module was called in training mode: the figures are for the whole script")
    if r["stopped"]:
        text.append(f"Stopped in {r['stopped']}: what comes after it is not in the figures")
    if findings.has_convolutions:
        text.append(
            "cuDNN computes layers of it: its workspaces are those of an H200, where networks "
            f"reserved what was predicted within {tables.CUDNN:.0%}; another card may need more"
        )
    if findings.grows:
        text.append(growth(findings))
    elif findings.trained:
        text += advice(r, findings.has_convolutions, 0 if too_small else gb - needs)
    room = max(LINES - 1 - len(text), 1)
    shown = r["notes"] + findings.of_libraries if args.details else r["notes"][:room]
    text += [f"- {note}" for note in shown]
    if (more := len(r["notes"]) - len(shown)) > 0:
        text.append(f"- and {more} more: --details, which also prints tables")
    return text


def growth(findings):
    """Return a line on the memory that grows with every update of a script."""
    what, why = "Memory", "something keeps tensors, as a sum of losses does; loss.item() does not"
    if findings.grows == "reserved":
        what = "Reserved memory"
        why = "it is not used again, as that of a stream which each update makes anew"
    by = f"{what} grows by {formats.size(findings.grows_gb)} with every update"
    return f"{by}, most of it allocated in {findings.grows_at or 'no line of it'}: {why}"


def where_it_is(r):
    """Return lines on the place of a script's peak, and its categories, with their types."""
    line = r["peak_at"]["train"]["line"]
    where = formats.where(r) + (f"; line {line}" if line else "")
    active = formats.size(r["train"]["device_active_gb"])
    held = sorted(r["train"]["breakdown_gb"].items(), key=lambda item: -item[1])
    peak = r["train"]["device_peak_gb"]
    parts = []
    for label, gb in held:
        if gb > SMALL * peak:
            parts.append(f"{label} {formats.size(gb)}{types(r['types_gb'].get(label, {}), gb)}")
    of_types = [part for sizes in r["logits_gb"].values() for part in sizes.items() if part[0]]
    if (gb := sum(gb for _, gb in of_types)) > SMALL * peak:
        sizes = {kind: sum(gb for other, gb in of_types if other == kind) for kind, _ in of_types}
        logits = f"logits, tokens x {r['vocabulary']:,}, {formats.size(gb)}{types(sizes, gb)}"
        parts.append(f"of all that {logits}")
    return [
        f"The peak: {where}; {active} active",
        f"It holds: {', '.join(parts)}",
    ]


def types(gb_of_types, gb):
    """Return the types of a category's tensors, with the bytes of each if there are several."""
    known = {name: part for name, part in gb_of_types.items() if name and part > LEAST * gb}
    if len(known) > 1:
        return f" ({', '.join(f'{name} {formats.size(part)}' for name, part in known.items())})"
    return f" {[*known][0]}" if known else ""


def on_host(process):
    """Return a line on the host memory of a script's process."""
    pinned = process["pinned_gb"]
    beside = f"pinned {formats.size(pinned)}" if pinned > 1e-4 else "nothing pinned"
    held = formats.size(process["peak_gb"])
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
