"""Data for the doors of the page: what a card needs, remedies and their diffs, the host's pace.

A door is one of the page's three entrances (README.md). The page's scripts choose from the data;
they compute nothing but the product of kernels and pace.
"""

from emulated_gpu.cards import CARDS
from emulated_gpu.why.advice import HOW
from emulated_gpu.why.fit import OPEN_GB, needs
from shared.lab.lessons import strips, times
from shared.lab.records import measured, reading, scripts, stored

GROUPS = stored.STAGES, stored.ONE_GPU, stored.VITS, stored.TEXT
# What the slider offers, from few inputs at once to many: as measured, by MICRO_BATCHES and BF16.
AT_ONCE = [*times.MICRO_BATCHES[1:], times.BF16]


def remedies():
    """Return {remedy: how it begins, its lesson, and where the page has the lesson's diff}."""
    found = {}
    for name, (how, lesson) in HOW.items():
        script = scripts.get(lesson.removesuffix(".py"))
        ids = [each.replace("/", "-") for each in (script.parent, script.name)]
        found[name] = {
            "how": how,
            "lesson": script.name,
            "pair": (script.parent, script.name),
            "diff": f"diff-{ids[0]}-{ids[1]}",
            "stage": None if script.side_road else f"{ids[1]}-the-change",
        }
    return found


def cards():
    """Return the cards with bf16 as (name, title, GB); what an older one needs is not stored."""
    return [(key, card.title, card.gb) for key, card in CARDS.items() if card.bf16]


def fit():
    """Return what a card needs for each stored prediction, a list of dictionaries for JSON.

    "ms" is the emulated time of an update for each of its inputs, None if it was not emulated.
    """
    rows = []
    for r in stored.predicted(*GROUPS):
        idea = "11_llm, with this and all techniques before it" if r["technique"] else None
        rows.append(
            {
                "model": reading.setting(r),
                "gpus": r["world_size"],
                "name": reading.name(r),
                "idea": idea or scripts.get(r["script"]).idea,
                "unit": reading.unit(r),
                "at_once": reading.at_once(r),
                "per_update": r["batch_size"],
                "needs_gb": round(needs(r), 2),
                "ms": round(r["time"]["ms"] / r["batch_size"], 2) if r.get("time") else None,
                "at_least": reading.computes_on_host(r),
            }
        )
    return {"cards": cards(), "rows": rows, "open_gb": OPEN_GB}


def pace():
    """Return what the slider multiplies: kernels and busy time of a pass, measured, and cards.

    A card's number is how many times as long as the measured GPU it is busy by their data sheets.
    """
    runs = [measured.updates(*setting) for setting in AT_ONCE]
    passes = [
        {
            "at_once": run.at_a_time,
            "kernels": run.kernels / run.passes,
            "busy_ms": run.busy_ms / run.passes,
        }
        for run in runs
    ]
    gpu = CARDS[stored.read(stored.STRIPS)[0]["card"].lower()]
    slower = [(c.title, gpu.rates.half / c.rates.half) for c in CARDS.values() if c.bf16]
    return {
        "images": times.BF16[1],
        "passes": passes,
        "us": measured.LAUNCH_US,
        "enough": runs[-1].enough,
        "gpu": gpu.title,
        "cards": slower,
    }


def busy_strips():
    """Return the host and the GPU during an update, over time: a dictionary for each record."""
    entries = stored.read(stored.STRIPS)
    longest = max(entry["ms"] for entry in entries)
    shown = []
    for entry in entries:
        width = 100 * entry["bin_ms"] / longest
        corners = [(n * width, 100 * share) for n, share in enumerate(entry["busy"])]
        shown.append(
            {
                **{key: entry[key] for key in ("card", "launch_us", "started", "ms")},
                "images": entry["batch_size"],
                "at_once": entry["micro_batch_size"],
                "starting_ms": strips.starting_ms(entry),
                "busy_ms": sum(entry["busy"]) * entry["bin_ms"],
                "host": 100 * strips.starting_ms(entry) / longest,
                "gpu": "".join(f"H{x:.2f}V{100 - y:.1f}H{x + width:.2f}" for x, y in corners),
            }
        )
    return shown
