"""Promise: a message of lacking memory is read as a person reads it, however it was pasted.

What a mutilated message does not say is named as missing, and never guessed.
"""

import io
import tomllib
from pathlib import Path

import pytest

from emulated_gpu.why import command, message, reading
from emulated_gpu.why.advice import HOW

MESSAGES = tomllib.loads(Path(__file__).with_name("messages.toml").read_text("utf-8"))
EVERY = [(f"{half} {i}", m) for half in MESSAGES for i, m in enumerate(MESSAGES[half])]
NUMBERS = "asked capacity free process allocated private cached reserved allowed other others"
SUMS = ("reserved", "cached", "others", "process")  # they may follow from other numbers
ROUNDED = 0.016 * reading.GIB  # by so much a difference of numbers is wrong that have two digits


def every_message(function):
    names, messages = zip(*EVERY)
    return pytest.mark.parametrize("expected", messages, ids=names)(function)


def nbytes(text):
    """Return the bytes of a text such as "2.00 GiB"."""
    number, unit = text.split()
    return float(number) * reading.TABLE["units"][unit]


def faults(read, expected):
    """Return the names of the numbers that were read otherwise than expected."""
    wrong = []
    for name in NUMBERS.split():
        size = read.numbers.get(name)
        if name not in expected:
            right = size is None or name in SUMS
        else:
            by = ROUNDED if name in SUMS else 1
            right = size is not None and abs(size - nbytes(expected[name])) < by
        if not right:
            wrong.append(f"{name}: {size}, not {expected.get(name)}")
    if read.numbers.get("gpu", 0) != expected.get("gpu", 0):
        wrong.append("gpu")
    return wrong


def moment(read):
    return read.moment and read.moment["name"]


@every_message
def test_each_message(expected):
    read = reading.read(expected["text"])
    assert not faults(read, expected)
    assert (moment(read), read.cause) == (expected.get("moment"), expected.get("cause"))
    if "gpus" in expected:
        assert read.gpus == expected["gpus"]
    lines = message.lines(expected["text"])
    assert 3 <= len(lines) <= 7
    assert all(line[0].isupper() and line.endswith(".") and "{" not in line for line in lines)


def folded(text, columns):
    cut = (line[i : i + columns] for line in text.split("\n") for i in range(0, len(line), columns))
    return "\n".join(cut)


def colored(text):
    lines = text.split("\n")
    return "\n".join(f"\x1b[1;31m{line[:9]}\x1b[0m\x1b[31m{line[9:]}\x1b[0m" for line in lines)


SAME = {  # forms of a text with all that was in it
    "40 columns": lambda text: folded(text, 40),
    "80 columns": lambda text: folded(text, 80),
    "colors": colored,
    "of a log": lambda text: "".join(
        f"2026-01-31 10:00:00,123 ERROR [rank0]: {line}\n" for line in text.strip().split("\n")
    ),
    "of Windows": lambda text: text.replace("\n", "\r\n"),
}


@pytest.mark.parametrize("form", SAME)
@every_message
def test_each_form_of_it(form, expected):
    read = reading.read(SAME[form](expected["text"]))
    assert read, "not recognised"
    assert not faults(read, expected)
    assert (moment(read), read.cause) == (expected.get("moment"), expected.get("cause"))


@pytest.mark.parametrize("share", (0.2, 0.4, 0.6, 0.8))
@pytest.mark.parametrize("end", ("start", "end"))
@every_message
def test_each_part_of_it(share, end, expected):
    text = expected["text"].strip()
    cut = round(share * len(text))
    read = reading.read(text[cut:] if end == "start" else text[: len(text) - cut])
    if read is None:  # what is left tells nothing about memory
        return
    numbers = {name: expected[name] for name in read.numbers if name in expected}
    if "gpus" not in expected:  # the part may tell more of another GPU
        assert not faults(read, {**numbers, "gpu": int(read.numbers.get("gpu", 0))})
    allowed = (expected.get("cause"), None, "room" if read.missing else None)
    assert read.cause in allowed or "says" in read.form
    expects = reading.TABLE["expected"].get(read.kind, ())
    assert {name for name in expects if name in expected} <= {*read.numbers, *read.missing}


def answer(monkeypatch, capsys, *words, stdin=""):
    """Return the exit code of `emulated-gpu why WORDS...`, and what it prints."""
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
    try:
        code = command.main(words)
    except SystemExit as error:
        code = error.code
    return code, "".join(capsys.readouterr())


def test_a_file_or_standard_input_in_place_of_a_script(monkeypatch, capsys, tmp_path):
    text = MESSAGES["made"][8]["text"]
    for name, encoding in (("log.txt", "utf-8"), ("powershell.txt", "utf-16")):
        (tmp_path / name).write_text(text, encoding)
        code, printed = answer(monkeypatch, capsys, "--error", str(tmp_path / name))
        assert code == 0 and "backward pass" in printed
    assert answer(monkeypatch, capsys, "--error", "-", stdin=text) == (0, printed)


@pytest.mark.parametrize(
    "words, reason",
    [
        (("--error", "-"), "no message about lacking memory"),
        (("--error", "absent.txt"), "absent.txt: No such file"),
        (("--error", "-", "train.py"), "in place of a script"),
        (("--error", "-", "-m", "train"), "in place of a script"),
    ],
)
def test_a_mistake_is_one_line(monkeypatch, capsys, words, reason):
    code, printed = answer(monkeypatch, capsys, *words, stdin="ValueError: shapes differ")
    assert code == 2 and reason in printed and len(printed.strip().split("\n")) == 1


def test_a_loss_over_a_vocabulary_comes_first():
    frames = '    loss = self.loss_function(logits)\n  File "x.py", line 36, in ForCausalLMLoss\n'
    said = message.lines(f"{frames}torch.OutOfMemoryError: CUDA out of memory.")
    assert "1. compute the loss in parts" in said[-2] and "11_llm/causal_chunked.py" in said[-2]


def test_remedies_are_techniques_with_their_lessons():
    techniques = reading.TABLE["techniques"]
    assert techniques == {name: lesson for name, (_, lesson) in HOW.items()}
    for names in reading.TABLE["by_moment"].values():
        assert len(names) <= message.MOST
