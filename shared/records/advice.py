"""Which script to take when the memory is not enough."""

from shared.records import scripts
from shared.records.record import TINY_MEASURED, by_script, read
from shared.records.units import size


def out_of_memory(name, phase, doing, full=None):
    """Returns what to say when a GPU's memory is not enough, in one line.

    Args:
        name: of the script.
        phase: "load" or "train".
        doing: what it was doing, in words.
        full: allocated, reserved and whole memory of the GPU, in bytes, if they are known.
    """
    better = next_with_less(name, phase)
    advice = f"{better} needs less" if better else "a smaller --model needs less"
    held = ""
    if full:
        allocated, reserved, total = (size(n / 1e9) for n in full)
        held = f" with {allocated} allocated, {reserved} reserved, of {total}"
    return f"out of GPU memory while {doing}{held}; {advice}"


def next_with_less(name, phase):
    """Returns the first later script that needs less of a GPU in a phase; None after the last.

    The measured ladder decides. Its records were made on a CPU, where the host's memory counts as
    the device's. So for loading, the weights are compared that a script trains with, because these
    are what it loads to the device. If no later script has less, the last one is returned, because
    it offloads.

    Args:
        name: of a script, such as "06_sgd/train".
        phase: "load" or "train".
    """
    held = {}
    for script, r in by_script(read(TINY_MEASURED)[0]).items():
        weights = r["train"]["breakdown_gb"]["parameters"]
        held[script] = weights if phase == "load" else r["train"]["device_peak_gb"]
    folder = name.partition("/")[0]
    here = f"{folder}/before" if name == f"{folder}/before" else f"{folder}/train"
    comparable = scripts.ladder() if here in scripts.ladder() else scripts.stages([folder])
    later = comparable[comparable.index(here) + 1 :]
    saving = (script for script in later if held.get(script, 0) < held.get(here, 0))
    return next(saving, later[-1] if later else None)
