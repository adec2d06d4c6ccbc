"""Generated parts of pages that show diffs and records; each function takes the page's folder."""

import os

from emulated_gpu.why.fit import needs
from shared.lab.records import formats, markdown, measured, reading, scripts, stored
from shared.lab.records.columns import Column, in_markdown
from shared.memory.accounting.blocks import CATEGORIES
from shared.run.record import ROOT

FIGURES = ROOT / "shared" / "lab" / "evidence" / "figures"  # a picture per stage


def pair(folder):
    """Return the scripts that a stage's page compares: its parent, if any, and its train.py."""
    script = scripts.get(f"{folder.name}/train")
    return [name for name in (script.parent, script.name) if name]


def glance(folder):
    """Return a table of a stage's most important figures, beside those of the stage before.

    Besides the peak, it has the categories that the stage is about: see _most_changed().
    """
    names = pair(folder)
    rows = [stored.predictions()[name] for name in names]
    measurements = stored.measurements(stored.TINY_MEASURED)
    tiny = [measurements[name] for name in names]
    train = [r["train"] for r in rows]
    several = rows[-1]["world_size"] > 1
    on_each = ", on each GPU" if several else ""
    lines = []
    if several:
        lines.append(("GPUs", *(str(r["world_size"]) for r in rows)))
    peaks = (f"**{peak}**" for peak in _amounts(train, "device_peak_gb"))
    lines.append((f"**peak, allocated{on_each}**", *peaks))
    for label in _most_changed(train):
        sizes = (phase["breakdown_gb"].get(label) for phase in train)
        lines.append((f"of that, {label}", *map(formats.amount, sizes)))
    lines.append(("reserved", *_amounts(train, "device_reserved_gb")))
    lines.append(("a card needs", *(formats.size(needs(r)) for r in rows)))
    # The host holds a few numbers in each stage; a row of them would look like a finding.
    if any(map(reading.on_host, rows)):
        lines.append(("on the host", *_amounts(train, "host_peak_gb")))
    for place in ("device", "host"):
        amounts = _amounts([r["load"] for r in rows], f"{place}_peak_gb")
        if amounts[0] != amounts[-1]:  # in most stages loading stays as it is
            lines.append((f"while loading, on the {place}", *amounts))
    timed = f"{reading.unit(rows[-1])}/s, measured on {measured.gpu()}"
    if several:
        n = rows[-1]["world_size"]
        timed += f": one of {n} timed without communication, times {n}"
    lines.append((timed, *map(_rate, rows)))
    tiny_peaks = _amounts([r["train"] for r in tiny], "device_peak_gb")
    lines.append(("tiny model on a CPU, measured: peak", *tiny_peaks))
    lines.append(("its test accuracy", *map(formats.learned, tiny)))
    card = formats.listed(r["device"].removeprefix("emulated ") for r in rows)
    links = (f"[{name.removesuffix('/train')}](../{name}.py)" for name in names)
    heading = (f"{reading.setting(rows[-1])}, predicted for {card}", *links)
    return markdown.text([heading, *lines])


def _most_changed(phases):
    """Return the one or two categories that change most from the first phase to the last.

    With a single phase, these are the largest. What follows from others, such as rounding, is no
    finding; nor is a second category that changes by less than a tenth of the first one.
    """
    last = phases[-1]["breakdown_gb"]
    before = phases[0]["breakdown_gb"] if len(phases) > 1 else {}
    labels = [label for label in CATEGORIES if label not in ("rounding", "workspaces")]
    change = {label: abs(last.get(label, 0) - before.get(label, 0)) for label in labels}
    most = sorted(change, key=change.get, reverse=True)[:2]
    return [label for label in most if change[label] > change[most[0]] / 10]


def _rate(record):
    """Return the measured images or texts per second of the script of a record, as text."""
    devices = record["world_size"]
    if devices > 1:
        return f"at most {measured.most_per_second(record['script'], devices):.0f}"
    return measured.images_per_second(record["script"], scripts.ladder())


def origin(folder):
    """Return, folded, how the figures of a stage's page were made, and what prints all of them."""
    name = pair(folder)[-1]
    full = stored.predictions()[name]
    tiny = stored.measurements(stored.TINY_MEASURED)[name]
    card = full["device"].removeprefix("emulated ")
    torch = full["versions"]["torch"]
    # The ledger counts tensors; gloo sends from buffers of its own, as NCCL does on GPUs.
    gloo = ", without gloo's buffers" if tiny["world_size"] > 1 else ""
    on_gpu = ""
    if any(run["name"] == name for run in measured.compared()):
        on_gpu = "; the script [on a GPU](../shared/lab/evidence/measured.md)"
    text = (
        f"Emulated: {card}, PyTorch {torch}. Measured: tiny on {tiny['device']}{gloo}{on_gpu}. "
        f"All: `python -m shared predict {folder.name[:2]}`."
    )
    return markdown.text(markdown.folded(markdown.ORIGIN, [text]))


def picture(folder):
    """Return the timeline of a stage beside that of the stage before, as a picture."""
    rows = [stored.predictions()[name] for name in pair(folder)]
    peaks = [f"{r['script']}, {formats.size(reading.peak(r))} at the peak" for r in rows]
    # Links are relative to the page that they are on.
    file = os.path.relpath(FIGURES / f"{folder.name}.png", folder)
    return f"![What holds the memory during one update: {' beside '.join(peaks)}]({file})"


def diff(folder, plain="no"):
    """Return the diff that leads to a stage's train.py and, if asked for, folded that of plain.py.

    In the first folder, it leads from plain.py to train.py.
    """
    names = pair(folder)
    if len(names) == 1:
        # 01 has no parent; beside plain.py it shows what Fabric takes over.
        names.insert(0, f"{folder.name}/plain")
    lines, size = markdown.diff(*names)
    folded = ()
    if plain == "folded":
        plain_lines, plain_size = markdown.diff(*scripts.plain(names))
        folded = markdown.folded(f"The same change in plain PyTorch: {plain_size}", plain_lines)
    return markdown.text(f"{size}; {lines[0]}", lines[2:], folded)


def _amounts(phases, key):
    return [formats.amount(phase[key]) for phase in phases]


def ladder(folder):
    """Return a short table of the ladder: as predicted, as measured, and of the last stage."""
    every = stored.predictions()
    rates = _rates([every[name] for name in scripts.ladder()])
    # What card, without its memory, and without the range and the version: pages have these.
    card = every[scripts.ladder()[0]]["device"].split()[1]
    gpu = measured.gpu().partition(",")[0]

    def idea(script):
        if script.parent in (None, *scripts.ladder()):
            return script.idea
        # 11 does not continue the ladder, so its row says where it comes from.
        return f"{script.idea}, to classify texts: from {formats.size(needs(every[script.parent]))}"

    def lines(script):
        continues = script.parent in scripts.ladder()
        return markdown.changed(script.parent, script.name) if continues else None

    columns = [
        Column("stage", lambda script: f"[{script.folder}]({script.folder}/)"),
        Column("idea", idea),
        Column("changed lines", lines),
        Column(f"a card needs ({card}, emulated)", lambda s: formats.size(needs(every[s.name]))),
        Column(f"images/s ({gpu}, measured)", lambda script: rates.get(script.name)),
    ]
    stages = [*scripts.ladder(), scripts.stages()[-1]]
    return markdown.text(in_markdown(columns, [*map(scripts.get, stages)]))


def _rates(records):
    """Return {script: its images per second}, where scripts of one rate refer to the first."""
    rates = {}
    for rate, alike in reading.grouped(records, lambda r: _rate(r).partition(" (")[0]).items():
        first, *others = [r["script"] for r in alike]
        # For a GPU that waits for its host, they are one program.
        rates[first] = f"{rate}, as fast as the host starts kernels" if others else rate
        rates |= dict.fromkeys(others, f"as {first[:2]}")
    return rates


def one_gpu(folder):
    """Return a picture of the ladder of those who have one GPU, and a table of its last scripts."""
    every = reading.by_script(stored.predicted(stored.ONE_GPU))

    # A later page explains the techniques of the others.
    rows = [every[name] for name in scripts.ON_ONE_GPU if name[:2] <= folder.name[:2]]

    def lines(record):
        before = scripts.get(record["script"]).parent
        return f"{markdown.changed(before, record['script'])} lines from {before[:2]}"

    columns = [
        Column("further, on one GPU", "[{script}](../{script}.py)".format_map),
        Column("from", lines),
        Column("tensors, GB", "train.device_peak_gb", ".2f"),
        Column("card, GB", needs, ".2f"),
    ]
    file = os.path.relpath(stored.RESULTS / "predicted-one-gpu.png", folder)
    picture = f"![Peak memory of the ladder on one GPU, stacked by what holds it]({file})"
    return markdown.text(picture, in_markdown(columns, rows))


def measured_ladder(folder):
    """Return the ladder as measured, one table per file of records and model."""

    def link(record):
        stage = ROOT / scripts.get(record["script"]).folder
        return f"[{record['script']}]({os.path.relpath(stage, folder)}/)"

    pieces = []
    for file, records in stored.results():
        stages = [records[name] for name in scripts.stages() if name in records]
        for rows in reading.by_model(stages):
            unit, per_gb = formats.scale(rows)
            form = ".2f" if unit == "GB" else ".1f"
            columns = [
                Column(f"peaks in {unit}", link),
                Column("loading", lambda r: r["load"]["device_peak_gb"] * per_gb, form),
                Column("training", lambda r: reading.peak(r) * per_gb, form),
            ]
            if rows[0]["dataset"] != "fake":  # an accuracy on noise would mean nothing
                columns.append(Column("test accuracy", formats.learned))
                columns.append(Column(f"{reading.unit(rows[0])}/s", reading.speed, ".0f"))
            title = f"{reading.setting(rows[0])}, on {markdown.device(rows[0])}:"
            pieces += [title, in_markdown(columns, rows)]
        if stages:
            pieces.append(markdown.sources(stages, file))
    return markdown.text(*pieces)


def language_models(folder):
    """Return a table of what language models reserve before and after, on four GPUs and one GPU."""
    rows = []
    for records in stored.text_records().values():
        # Both runs of train.py have all techniques; they differ in the number of GPUs.
        trained = {r["world_size"]: r for r in records if r["script"].endswith("/train")}
        rows.append({"before": records[0], "on_four": trained[4], "on_one": trained[1]})
    columns = [
        Column("GB", "before.model"),
        Column("before.py", "before.train.device_reserved_gb", formats.number),
        Column("train.py, each of 4 GPUs", "on_four.train.device_reserved_gb", formats.number),
        # It is a part of the answer: that is where states went.
        Column("and host", "on_four.train.host_peak_gb", formats.number),
        Column("train.py, one GPU", "on_one.train.device_reserved_gb", formats.number),
    ]
    everything = [record for row in rows for record in row.values()]
    sources = markdown.sources(everything, stored.PREDICTED, what="language models")
    return markdown.text(in_markdown(columns, rows), sources)


def one_by_one(folder):
    """Return a table of each technique's effect on the peaks, from before.py to train.py."""
    models = {}
    for model, records in stored.text_records().items():
        # The group also has train.py on one GPU, which names no technique.
        steps = [r for r in records if r["technique"] or r["script"].endswith("/before")]
        models[model.rpartition("/")[2]] = steps
    table = [("GB", *models)]
    # Every model has the same steps in the same order.
    for rows in zip(*models.values()):
        technique = rows[0]["technique"]
        cells = (formats.number(reading.peak(r)) for r in rows)
        table.append((f"+ {technique}" if technique else "before.py", *cells))
    return markdown.text(table)
