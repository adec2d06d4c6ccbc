"""Promise: a timeline has the running line and the tensors in memory at every moment."""

import pytest
from conftest import NAMES, TEXT

from shared.lab.predict.lines import Lines
from shared.lab.records import scripts, stored

STORED = {moments["script"]: moments for moments in stored.timelines()}


def functions(name):
    """Return the function around each line of a script, {number: name}."""
    found, at = {}, None
    for n, line in enumerate(scripts.get(name).lines, 1):
        if line and not line[0].isspace():
            at = line[4:].partition("(")[0] if line.startswith("def ") else None
        found[n] = at
    return found


@pytest.mark.parametrize("name", NAMES + TEXT)
def test_lines_are_those_of_the_script(name):
    moments, of = STORED[name], functions(name)
    there = {line for line in moments["lines"] if line}
    assert {of[line] for line in there} == {"train_step"}
    assert {of[line] for line in moments["chosen"] if line} <= {"build", "parallelize"}
    text = {line: scripts.get(name).lines[line - 1] for line in there}
    for phase, word in (("forward", "model("), ("backward", "backward("), ("step", "zero_grad(")):
        lines = {line for at, line in zip(moments["phases"], moments["lines"]) if at == phase}
        assert any(word in text[line] for line in lines if line)
    forward = moments["phases"].index("backward")
    assert "backward(" in text[moments["lines"][forward]]


def test_lines_of_a_script():
    script = scripts.get("06_sgd/train").load()
    lines = Lines(script)
    assert lines() == (None, None)
    seen = []
    optimizer = script.torch.optim.SGD([script.torch.zeros(1, requires_grad=True)])

    def closure():
        seen.append(lines())
        return 0.0

    optimizer.step(closure)
    ((running, chosen),) = seen
    assert running is None and "optim.SGD(" in scripts.get("06_sgd/train").lines[chosen - 1]


@pytest.mark.parametrize("name", NAMES + TEXT)
def test_a_timeline_ends_with_its_update(name):
    """Allocations of the validation after it are not shown as a part of the optimizer step."""
    moments = STORED[name]
    held = moments["device"].get("activations", [0] * len(moments["at"]))
    step = [mb for mb, phase in zip(held, moments["phases"]) if phase == "step"]
    assert step == sorted(step, reverse=True)
