"""The answer about a message of lacking memory, in about five lines: reading.py reads it."""

import re
import sys
from pathlib import Path

from emulated_gpu.texts import UserError
from emulated_gpu.why import reading
from emulated_gpu.why.reading import TABLE, holds

MOST = 3  # remedies
END = 4_000_000  # bytes of a log that are read: what ended it stands there


def text_of(file):
    """Return the text of a file, or of standard input if it is "-".

    Raises:
        UserError: it cannot be read.
    """
    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise UserError(f"{file}: {error.strerror}") from None
    # PowerShell writes UTF-16 into files.
    wide = data[:2] in (b"\xff\xfe", b"\xfe\xff")
    return (
        data.decode("utf-16", "replace")[-END:] if wide else data[-END:].decode("utf-8", "replace")
    )


def lines(text):
    """Return the answer about a text, as lines.

    Raises:
        UserError: no message was recognised in it.
    """
    message = reading.read(text)
    if not message:
        raise UserError(TABLE["nothing"])
    told = message.moment["says"] if message.moment else TABLE["no_moment"]
    if not message.moment and message.cause in TABLE["no_moment_for"]:
        told = None
    said = [line for line in (*_numbers(message), _cause(message), told, *_end(message)) if line]
    tool = message.form.get("tool", "nvidia-smi")
    return [line.replace("nvidia-smi", tool) for line in said]


def size(nbytes):
    """Return bytes as PyTorch writes them: "2.00 GiB", "41.56 MiB"."""
    units = TABLE["units"]
    if nbytes >= units["GiB"]:
        return f"{nbytes / units['GiB']:.2f} GiB"
    for unit in ("MiB", "KiB"):
        if nbytes >= units[unit]:
            return f"{nbytes / units[unit]:.4g} {unit}"
    return f"{nbytes:.0f} bytes"


def _filled(says, message):
    """Return a sentence with its numbers, or the first of several whose numbers are known."""
    for sentence in [says] if isinstance(says, str) else says:
        names = re.findall(r"{(\w+)}", sentence)
        if all(name in message.numbers for name in names):
            for name in names:
                value = message.numbers[name]
                shown = f"{value:.0f}" if name == "gpu" else size(value)
                sentence = sentence.replace(f"{{{name}}}", shown)
            return sentence
    return ""


def _applies(rule, message):
    """Return a rule's sentence if its conditions are true and its numbers known, else ""."""
    right = message.kind in rule.get("kinds", [message.kind]) and holds(rule, message.numbers)
    return _filled(rule["says"], message) if right else ""


def _numbers(message):
    """Return lines on what was asked for, and on who held which memory."""
    if "says" in message.form:
        yield _filled(message.form["says"], message)
    else:
        small = message.numbers.get("asked") in TABLE["small"]["sizes"]
        note = TABLE["small"]["says"] if small else ""
        yield f"{_filled(TABLE['request'], message)} {note}".rstrip()
    parts = [said for rule in TABLE["numbers"] if (said := _applies(rule, message))]
    if parts and message.kind in TABLE["expected"]:
        held = "; ".join(parts)
        guessed = TABLE["guessed"].replace("{pid}", message.guessed) if message.guessed else ""
        yield f"{held[0].upper()}{held[1:]}. {guessed}".rstrip()


def _cause(message):
    """Return a line on the cause, on fragmentation, and on other processes."""
    by_form = TABLE["by_form"].get(message.cause, TABLE["unknown"])
    said = [_filled(message.rule["says"], message) if message.rule else by_form]
    table = TABLE["fragmentation"]
    if message.kind in table["kinds"] and message.cause not in table["silent_after"]:
        said.append(next(filter(None, (_applies(rule, message) for rule in table["says"]))))
    said.append(_applies(TABLE["nobody"], message))
    return " ".join(filter(None, said))


def remedies(message):
    """Return what to try, in order, as names of techniques or as texts of their own."""
    name = message.moment["name"] if message.moment else ""
    tried = [*TABLE["first"].get(message.cause, ())]
    if message.cause not in TABLE["no_moment_for"]:
        logits = TABLE["logits"]
        if name in ("forward", "backward") and any(reading.found(logits["find"], message.text)):
            tried.append(logits["try"])
        tried += TABLE["by_moment"][name]
    return tried[:MOST]


def _end(message):
    """Return lines on what to try, on what is missing, and on other GPUs."""
    shown = []
    for number, name in enumerate(remedies(message), 1):
        lesson = TABLE["techniques"].get(name)
        shown.append(f"{number}. {name} ({lesson})" if lesson else f"{number}. {name}")
    yield TABLE["try"].replace("{list}", "; ".join(shown))
    if message.missing and "says" not in message.form:
        words = ", ".join(TABLE["words"][name] for name in message.missing)
        yield TABLE["missing"].replace("{list}", words)
    if len(message.gpus) > 1:
        gpus = ", ".join(map(str, message.gpus))
        yield _filled(TABLE["several"].replace("{list}", gpus), message)
