"""The stored prediction nearest to a measurement, and the difference between the two."""

import re

from shared.records import stored
from shared.records.views import is_prediction, listed, origin, read_list, setting, unit

OF_GPUS = (stored.PREDICTED, stored.SIDE_ROADS, stored.VITS, stored.TEXT, stored.CARDS)


def predictions(records):
    """Return the predictions for measurements of one model, {script: (record, its file)}.

    A measurement without a prediction of the same settings is left out. For a GPU, the prediction
    is for the same card if there is one, otherwise for the card of the ladder.
    """
    gpus = [(p, file) for file in OF_GPUS for p in read_list(file) if not p.get("technique")]
    cpu = [(p, file) for file, its in stored.on_a_cpu() for p in its]
    found = {}
    for r in (r for r in records if not is_prediction(r)):
        same = [(p, file) for p, file in (gpus if _on_gpu(r) else cpu) if _same(r, p)]
        # Those for the same card first, otherwise in order.
        same.sort(key=lambda its: not _is_of_card(its[0], r["device"]))
        if same:
            found[r["script"]] = same[0]
    return found


def _on_gpu(record):
    return record["train"]["device_reserved_gb"] is not None


def _same(measured, predicted):
    """Return whether a prediction has the settings of a measurement."""
    settings = ("script", "batch_size", "micro_batch_size", "world_size", "precision")
    made = (measured.get("steps") or 0) - (measured.get("resumed_at") or 0)
    return (
        setting(measured) == setting(predicted)
        and all(measured.get(key) == predicted.get(key) for key in settings)
        and made >= predicted["steps"]  # fewer updates hold less: the first has no states yet
        and predicted["dataset"] in (None, measured["dataset"])
        and (unit(measured) == "images" or _same_lengths(measured, predicted))
    )


def _same_lengths(measured, predicted):
    """Return whether texts had the predicted lengths; unless given, these are max_length."""
    shapes, expected = (r.get("input_shapes") for r in (measured, predicted))
    if shapes and not expected:
        return all(length == measured["max_length"] for _, length in shapes)
    return bool(shapes) and shapes == expected


def _is_of_card(predicted, device):
    """Return whether a prediction is for a card, named as its driver does."""
    title = predicted["device"].removeprefix("simulated ").replace(" GB", "GB")
    return {*title.split()} <= {*re.split("[ -]", device)}


def difference(measured_gb, predicted_gb):
    """Format the difference of a prediction from a measurement, both in GB."""
    more = round((predicted_gb - measured_gb) * 1e9)
    share = f"{predicted_gb / measured_gb - 1:+.1%}"
    if not more:
        return "same to the byte"
    return share if share.strip("+-0.%") else f"{more:+,} bytes"


def note(records, found):
    """Return a note on measurements and their predictions(), and the origins of these.

    The note is plain text; each file of predictions has one origin, in Markdown.
    """
    if not found:
        return "No stored prediction has the settings of these measurements.", []
    peaks = {
        r["script"]: [x["train"]["device_peak_gb"] for x in (r, found[r["script"]][0])]
        for r in records
        if r["script"] in found
    }
    far = max(peaks, key=lambda script: abs(peaks[script][1] / peaks[script][0] - 1))
    most = difference(*peaks[far])
    said = []
    if len(found) < len(records):
        said.append(f"{len(found)} of {len(records)} measurements have a stored prediction.")
    if most == "same to the byte":
        said.append("Measured and predicted are the same to the byte.")
    else:
        said.append(f"The largest difference is {most}, in {far}; + means more than measured.")
    files = {file: [p for p, its in found.values() if its == file] for _, file in found.values()}
    origins = [origin(predicted, file) for file, predicted in files.items()]
    return " ".join([*said, _of_which(records[0], found)]), origins


def _of_which(record, found):
    """Return a sentence on the device that the predictions are for."""
    if not _on_gpu(record):
        return "The prediction is for any CPU: it counts the bytes of tensors, not their speed."
    cards = listed(p["device"].removeprefix("simulated ") for p, _ in found.values())
    alike = all(_is_of_card(p, record["device"]) for p, _ in found.values())
    return f"Predicted for: {cards}{'' if alike else '; measured on another card'}."
