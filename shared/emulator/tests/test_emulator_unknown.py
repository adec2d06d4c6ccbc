"""Promise: what is asked twice about values that no kernel computed, has answers that fit."""

import json

import pytest
from conftest import NEEDS, emulate

pytestmark = NEEDS

# Functions of a program; each is called five times, since assumptions may alternate. `ids` are
# made of a tensor without values, and `wide` is one.
CASES = {
    "rows of a mask": """
        m = ids() == 7
        end[m.any(dim=1)] = m.int().argmax(dim=1)[m.any(dim=1)]
    """,
    "a mask made twice": """
        t = ids()
        end[(t == 7).any(1)] = t.argmax(1)[(t == 7).any(1)]
    """,
    "a mask made by a function": """
        t = ids()
        end[is_in(t, 7)] = t.argmax(1)[is_in(t, 7)]
    """,
    "rows of a large mask": """
        m = wide > 0
        end[m.any(1)] = m.int().argmax(1)[m.any(1)]
    """,
    "any, sum, nonzero": """
        for m in (ids() == 7, wide > 0):
            assert m.any() == m.any()
            assert m.any() == (m.sum() > 0) == (m.count_nonzero() > 0) == (len(m.nonzero()) > 0)
            if m.any():
                (ids() if m.numel() == 512 else wide)[m].max()
    """,
    "reading, writing": """
        for x, m in ((ids(), ids() == 1), (wide, wide > 0)):
            x[m] = x[m]
            x[m] = x.masked_select(m)
            x[torch.where(m)] = x[m.nonzero(as_tuple=True)]
            x[m.any(1)] = x[m.any(1)]
            assert len(x[m].split(m.sum(1).tolist())) == 8
    """,
    "gradients": """
        for size, m in ((64, ids() == 1), (300_000, torch.randn(8, 300_000, device="cuda") > 0)):
            x = torch.randn(8, size, device="cuda", requires_grad=True)
            (x[m] + x.masked_select(m) + x[torch.where(m)]).sum().backward()
            y = x.clone()
            y[m] = x[m]
            y[m.any(1)] = x[m.any(1)]
            y.masked_scatter(m, x[m]).sum().backward()
    """,
    "unique, sort": """
        for x in (ids(), wide.long()):
            values, inverse, counts = x.unique(return_inverse=True, return_counts=True)
            assert len(values) == len(counts) == len(x.unique())
            assert values[inverse].shape == x.shape
            assert len(x.unique_consecutive()) == len(x.unique_consecutive(return_counts=True)[1])
            ordered, order = x.sort(1)
            assert (x.gather(1, order) == ordered).all()
    """,
    "loops end": """
        tries = iter(range(10))
        while (ids() != 1).any():
            next(tries)
        while not (ids() == 7).any():
            next(tries)
        while (wide > 0).any():
            next(tries)
        done = ids()[:, 0] == 7
        while not done.any():
            done |= ids()[:, next(tries)] == 7
        m = wide > 0
        while m.any():
            m &= wide > next(tries)
    """,
    "NaN and infinity": """
        m = wide.isnan() | wide.isinf()
        assert not m.any() and not m.sum() and not len(m.nonzero())
        m |= wide.isnan()
        assert not m.any()
        m |= wide > 0
        assert bool(m.any()) == bool(len(m.nonzero()))
        for x in (wide, ids().float()):
            assert not x.isnan().all() and not x.isnan().all(1).any()
            assert not x.isnan().any(1).any() and not len(x.isnan().any(1).nonzero())
    """,
}
SCRIPT = """
import json, textwrap, torch

wide = torch.randn(8, 2_000_000, device="cuda")
end = torch.full((8,), 64, device="cuda")


def ids():
    return torch.empty(8, 64, 5000, device="cuda").argmax(-1)


def is_in(t, number):
    return (t == number).any(1)


results = {}
for name, code in json.loads(r'''CASES''').items():
    code = compile(textwrap.dedent(code), name, "exec")
    try:
        for _ in range(5):
            exec(code)
        results[name] = "fits"
    except Exception as error:
        results[name] = repr(error)
print(json.dumps(results))
"""


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Return what each of CASES ends with, {name: "fits" or the error}."""
    script = SCRIPT.replace("CASES", json.dumps(CASES))
    printed = emulate(script, tmp_path_factory.mktemp("unknown"), "--card", "h200")
    return json.loads(next(line for line in printed.splitlines() if line.startswith("{")))


@pytest.mark.parametrize("name", CASES)
def test_answers_fit(name, results):
    assert results[name] == "fits"
