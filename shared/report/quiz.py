"""What the page's quiz asks: the peak of every stage, and of what the exercises run."""

from shared.lessons import exercises
from shared.lessons.answers import title
from shared.records import scripts, stored
from shared.records.views import setting


def asked():
    """Returns what can be guessed, {key: dictionary with "before", "before_mb" and "now_mb"}.

    The key is the name of a stage, or for an exercise its folder and number, such as "06_sgd/2".
    The first two tell what is known: what it is, and its peak in MB.
    """
    records, found = stored.predictions(), {}
    for name, record in records.items():
        before = records.get(scripts.get(name).parent)
        if before and setting(before) == setting(record):
            peaks = (r["train"]["device_peak_gb"] for r in (before, record))
            found[name] = _question(before["script"], *peaks)
    entries = exercises.stored_entries()
    for e in exercises.every():
        record, before = (entries[e.folder, e.number][key] for key in ("record", "against"))
        if e.phase != "cost":
            place = e.memory[-1]  # of two memories, the exercise is about the other one
            peaks = [r[e.phase][f"{place}_peak_gb"] for r in (before, record)]
            if all(peaks):
                known = f"{title(before, record)}, {'loading' if e.phase == 'load' else 'training'}"
                known += ", on the host" if place == "host" else ""
                found[f"{e.folder}/{e.number}"] = _question(known, *peaks)
    return found


def _question(before, before_gb, now_gb):
    return {"before": before, "before_mb": before_gb * 1e3, "now_mb": now_gb * 1e3}
