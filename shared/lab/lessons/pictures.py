"""The pictures on the pages, drawn from stored records."""

import functools
import json

from PIL import Image

from shared.lab.lessons import price, strips
from shared.lab.lessons.parts import FIGURES, pair
from shared.lab.predict import timeline
from shared.lab.records import bars, scripts, stored
from shared.lab.records.reading import by_script
from shared.lab.records.stored import RESULTS
from shared.run.record import ROOT


def every():
    """Yield each picture: its file, the values in its metadata, and a function that draws it."""
    predicted = stored.predictions()
    measured = stored.measurements(stored.TINY_MEASURED)
    ladder = scripts.ladder()
    # 01 to 07 use one GPU anyway; in place of 08 to 10 come other scripts.
    one_gpu = [predicted[name] for name in ladder[:7]] + stored.predicted(stored.ONE_GPU)
    for name, records in (
        ("predicted-one-gpu", one_gpu),
        ("tiny-cpu", [measured[name] for name in scripts.stages()]),
    ):
        file = RESULTS / f"{name}.png"
        # A function, since drawing takes long and most pictures are up to date.
        yield file, bars.peaks(records), functools.partial(bars.draw, records, file)
    moments = by_script(stored.timelines())
    for folder in scripts.folders():
        both = [moments[name] for name in pair(ROOT / folder)]
        file = FIGURES / f"{folder}.png"
        peaks = bars.peaks([m["record"] for m in both])
        yield file, peaks, functools.partial(timeline.beside, both, file)
    for theme, file in price.FILES.items():
        yield file, price.points(), functools.partial(price.draw, file, theme)
    yield strips.FILE, strips.shown(), functools.partial(strips.draw, strips.FILE)


def draw():
    """Draw the pictures that are missing, and those whose records have changed."""
    for file, shown, function in every():
        # bars.save() has stored the values there.
        drawn = json.loads(Image.open(file).info["Description"]) if file.exists() else None
        # Compared by values, since the same picture has other bytes with another matplotlib.
        if drawn != shown:
            function()
            print(f"{file.relative_to(ROOT)} drawn")
