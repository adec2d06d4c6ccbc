"""The stored prediction nearest to a measurement on a GPU, and the difference between the two."""

import re

from shared.lab.records import stored
from shared.lab.records.formats import listed
from shared.lab.records.reading import is_prediction, on_gpu, setting

GROUPS = (stored.STAGES, stored.SIDE_ROADS, stored.VITS, stored.TEXT)


def predictions(records):
    """Return the predictions for measurements of one model on a GPU, {script: record}.

    A measurement without a prediction of the same settings is left out.
    """
    # A record with a technique is of a script with some of its techniques left out.
    predicted = [p for p in stored.predicted(*GROUPS) if not p.get("technique")]
    nearest = {}
    for r in (r for r in records if not is_prediction(r) and on_gpu(r)):
        same = [p for p in predicted if _same(r, p)]
        if same:  # of several groups with these settings, the first in GROUPS
            nearest[r["script"]] = same[0]
    return nearest


def _same(measured, predicted):
    """Return whether a prediction has the settings of a measurement."""
    settings = ("script", "batch_size", "micro_batch_size", "world_size", "precision")
    made = (measured.get("steps") or 0) - (measured.get("resumed_at") or 0)
    return (
        setting(measured) == setting(predicted)
        and all(measured.get(key) == predicted.get(key) for key in settings)
        and made >= predicted["steps"]  # fewer updates hold less: the first has no states yet
    )


def _is_of_card(predicted, device):
    """Return whether a prediction is for a card, named as its driver does."""
    title = predicted["device"].removeprefix("emulated ").replace(" GB", "GB")
    # A title is A100 80 GB where the driver's name is NVIDIA A100-SXM4-80GB.
    return {*title.split()} <= {*re.split("[ -]", device)}


def difference(measured_gb, predicted_gb):
    """Format the difference of a prediction from a measurement, both in GB."""
    more = round((predicted_gb - measured_gb) * 1e9)
    share = f"{predicted_gb / measured_gb - 1:+.1%}"
    if not more:
        return "same to the byte"
    # 0.0% would look like equality, which is promised to the byte; so bytes are shown.
    return share if share.strip("+-0.%") else f"{more:+,} bytes"


def note(records, predicted):
    """Return a note on measurements on a GPU and their predictions()."""
    if not predicted:
        return "No stored prediction has the settings of these measurements."
    peaks = {
        r["script"]: [x["train"]["device_peak_gb"] for x in (r, predicted[r["script"]])]
        for r in records
        if r["script"] in predicted
    }
    # One number for all: the worst, with its sign.
    far = max(peaks, key=lambda script: abs(peaks[script][1] / peaks[script][0] - 1))
    most = difference(*peaks[far])
    sentences = []
    if len(predicted) < len(records):
        sentences.append(
            f"{len(predicted)} of {len(records)} measurements have a stored prediction."
        )
    if most == "same to the byte":
        sentences.append("Measured and predicted are the same to the byte.")
    else:
        sentences.append(f"The largest difference is {most}, in {far}; + means more than measured.")
    cards = listed(p["device"].removeprefix("emulated ") for p in predicted.values())
    alike = all(_is_of_card(p, records[0]["device"]) for p in predicted.values())
    sentences.append(f"Predicted for: {cards}{'' if alike else '; measured on another card'}.")
    return " ".join(sentences)
