"""Promise: the advice is a technique that a script does not have, at a price that it says."""

import pytest

from emulated_gpu import cards
from emulated_gpu.why import advice, fit
from shared.lab.records import scripts


@pytest.mark.parametrize("devices", [1, 4])
@pytest.mark.parametrize("category", [*advice.ACTIVATIONS, *advice.KEPT, "temporaries"])
def test_advice_is_a_technique_with_a_lesson(category, devices):
    for precision in ("fp32", "fp32 and tf32", "bf16", "bf16 and fp32"):
        peak_at = {"train": {"phase": "step"}}
        train = {"device_reserved_gb": 10, "device_peak_gb": 9, "breakdown_gb": {category: 8}}
        r = {"precision": precision, "world_size": devices, "peak_at": peak_at, "train": train}
        r["time"] = None
        *_, said = advice.advice({**r, "load": train})
        lesson = said.rpartition("(lesson ")[2].removesuffix(")")
        if category in advice.ACTIVATIONS:  # 16 bits come first where there are none
            assert lesson.startswith("09" if "bf16" in precision else "03")


def test_each_lesson_exists():
    lessons = {lesson for _, lesson in advice.HOW.values()}
    assert lessons <= {f"{name}.py" for name in scripts.every()}


def test_with_room_nothing_has_to_be_saved():
    train = {"device_reserved_gb": 10, "device_peak_gb": 9}
    train["breakdown_gb"] = {"parameters": 3, "activations": 4, "temporaries": 1}
    r = {"precision": "bf16", "world_size": 1, "train": train, "load": train}
    r |= {"batch_size": 8, "unit": "images", "time": None, "peak_at": {"train": {"phase": "step"}}}
    _, line = advice.advice(r, free_gb=20)  # 18 GB for 5 GB of 8 images, once more and more
    assert line.endswith("room for about 4 times the images at once")
    for less in (r | {"batch_size": 0}, r):  # without inputs nothing grows; 6 GB are too few
        assert any("(lesson" in line for line in advice.advice(less, free_gb=6))


@pytest.mark.parametrize("busy_ms, price", [(20, "doubles an update"), (99, "a third more time")])
def test_the_price_of_checkpointing_depends_on_who_sets_the_pace(busy_ms, price):
    train = {"device_peak_gb": 9, "breakdown_gb": {"activations": 8}}
    time = {"ms": 100, "busy_ms": busy_ms}
    r = {"precision": "bf16", "world_size": 1, "train": train, "time": time}
    assert price in advice.what_first(r)[0]


@pytest.mark.parametrize(("gb", "convolutions"), [(13.0, False), (13.0, True), (4.5, False)])
def test_the_smallest_card_leaves_room(gb, convolutions):
    """Two GB, and for convolutions the part of cuDNN's workspaces that may be missing."""
    train = {"device_reserved_gb": gb, "device_peak_gb": gb, "breakdown_gb": {}}
    r = {"world_size": 1, "train": train, "load": train, "precision": "bf16"}
    r["peak_at"] = {"train": {"phase": "step"}}
    (line,) = advice.advice(r, convolutions)
    chosen = cards.CARDS[line.rpartition(" ")[2]]
    needed = gb * (1 + fit.CUDNN if convolutions else 1) + cards.CONTEXT_GB + 2
    assert chosen.gb >= needed
    assert not any(needed <= other.gb < chosen.gb for other in cards.CARDS.values())
