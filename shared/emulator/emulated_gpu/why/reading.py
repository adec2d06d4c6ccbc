"""A message of lacking memory, as PyTorch, a library or Linux gave it: its numbers and its cause.

What is known about messages is in messages.json, which a page's script can read as well. A text
may be cut, folded, colored, or a log of several ranks. Sizes are in bytes.
"""

import json
import re
from pathlib import Path
from types import SimpleNamespace

TABLE = json.loads(Path(__file__).with_name("messages.json").read_text("utf-8"))
GIB = 2**30
TERM = re.compile(r"([+-]?) *([a-z0-9.*]+)")


def found(pattern, text):
    """Return an iterator over the matches of a pattern of the table in a text."""
    return re.finditer(pattern.replace("{n}", TABLE["n"]), text, re.MULTILINE)


def total(terms, numbers):
    """Return the bytes of a sum such as "free + 0.5*capacity - 1", None if a part is unknown."""
    result = 0
    for sign, product in TERM.findall(terms):
        size = 1 if re.search("[a-z]", product) else GIB  # a number alone is in GiB
        for factor in product.split("*"):
            value = float(factor) if factor[0].isdigit() else numbers.get(factor)
            if value is None:
                return None
            size *= value
        result += -size if sign == "-" else size
    return result


def holds(rule, numbers):
    """Return whether all comparisons of a rule are true; one with an unknown number is not."""
    for comparison in rule.get("when", ()):
        left, sign, right = re.split("(>=|<=|>|<)", comparison)
        left, right = total(left, numbers), total(right, numbers)
        if left is None or right is None:
            return False
        larger, smaller = (left, right) if ">" in sign else (right, left)
        if larger < smaller or (larger == smaller and "=" not in sign):
            return False
    return rule.get("without") not in numbers


def ranks(text):
    """Return the texts of a log's ranks, as pairs: lines without prefixes, and all in one line."""
    for pattern, by in TABLE["clean"]:
        text = re.sub(pattern, by, text, flags=re.MULTILINE)
    of_ranks, rank = {}, ""
    for line in text.split("\n"):
        if begins := re.search(TABLE["rank"], line):
            rank = next(filter(None, begins.groups()))
        before = None
        while before != line:  # a prefix may follow a prefix
            before = line
            for pattern in TABLE["prefixes"]:
                line = re.sub(pattern, "", line)
        of_ranks.setdefault(rank, []).append(line)
    return [("\n".join(lines), re.sub(r"\s+", "", "".join(lines))) for lines in of_ranks.values()]


def candidates(lines, text, forms):
    """Return the messages in one rank's text, each with its numbers, in the order of the text."""
    begun = []
    for number, form in enumerate(forms):
        if "lines" in form:
            begun += [(len(text), number, form) for _ in found(form["lines"], lines)]
        else:
            begun += [(match.start(), number, form) for match in found(form["find"], text)]
    begun.sort(key=lambda begin: begin[:2])
    ends = [*(begin for begin, *_ in begun[1:]), len(text)]
    result = []
    for (begin, number, form), end in zip(begun, ends):
        if forms is TABLE["parts"]:  # what is left of a message may begin before
            begin, end = 0, len(text)
        numbers, others = fields(text[begin:end])
        known = len(numbers) + len(others)
        message = SimpleNamespace(form=form, begin=begin, text=text, numbers=numbers)
        message.others, message.rank = others, (-known, number)
        result.append(message)
    return result


def fields(text):
    """Return the numbers of one message, and the (id, bytes) of the processes that it names."""
    numbers = {}
    for rule in TABLE["fields"]:
        for match in found(rule["find"], text):
            names = [pair for pair in zip(rule["names"], match.groups()) if pair[1]]
            unit = TABLE["units"][dict(names).get("unit", "B")]
            for name, value in names:
                if name != "unit":
                    numbers.setdefault(name, float(value) * unit)
    named = (match.groups() for match in found(TABLE["process"], text))
    return numbers, [(pid, float(size) * TABLE["units"][unit]) for pid, size, unit in named]


def derive(message):
    """Add to a message's numbers what follows from them; store the id of a guessed process."""
    numbers, named = message.numbers, sorted(message.others, key=lambda other: other[1])
    message.guessed = None
    for name, terms in TABLE["derived"][:2]:
        _add(numbers, name, terms)
    # What stands before and after the processes shows that none of them was cut off.
    if not {"capacity", "reserved"} <= numbers.keys():
        named = []
    # In a container, the own process has another number than the driver gives it. It holds at
    # least what PyTorch has reserved.
    if named and "process" not in numbers:
        own = next((other for other in named if other[1] >= numbers["reserved"]), None)
        if own:
            message.guessed, numbers["process"] = own
            named.remove(own)
    if named:
        numbers["others"] = sum(size for _, size in named)
    elif "process" in numbers:
        _add(numbers, "others", "capacity - free - process")
    for name, terms in TABLE["derived"][2:]:
        _add(numbers, name, terms)


def _add(numbers, name, terms):
    if name not in numbers and (size := total(terms, numbers)) is not None:
        numbers[name] = max(size, 0)


def moment(message):
    """Return the rule of the moment in training at which a message came, None if it is unknown."""
    before, after = message.text[: message.begin], message.text[message.begin :]
    *_, last = [0, *(match.end() for match in found(TABLE["traceback"], before))]
    for part in (before[last:], before, after):
        # The innermost frame that tells a moment stands last.
        ends = []
        for rule in TABLE["moments"]:
            ends += [(match.end(), rule) for match in found(rule["find"], part)]
        if ends:
            return max(ends, key=lambda end: end[0])[1]
        if any(found(TABLE["fallback"]["find"], part)):
            return TABLE["fallback"]
    return None


def read(text):
    """Return the message in a text, with `numbers`, `moment`, `cause` and `missing`, or None."""
    for forms in (TABLE["forms"], TABLE["parts"]):
        parts = ranks(text)
        messages = [message for part in parts for message in candidates(*part, forms)]
        if messages:
            break
    else:
        return None
    message = min(messages, key=lambda one: one.rank)
    kind = message.kind = message.form["kind"]
    gpus = {int(one.numbers["gpu"]) for one in messages if "gpu" in one.numbers}
    message.gpus = sorted(gpus)
    derive(message)
    # A server's own line often follows the message, and says more than it.
    server = next((one.form for one in messages if one.form["kind"] == "server"), {})
    begins = (rule for rule in TABLE["moments"] if rule["name"] == server.get("moment"))
    message.moment = moment(message) or next(begins, None)
    rules = (rule for rule in TABLE["causes"] if kind in rule["kinds"])
    message.rule = next((rule for rule in rules if holds(rule, message.numbers)), None)
    message.cause = (
        message.rule["name"] if message.rule else message.form.get("cause", server.get("cause"))
    )
    known = {*message.numbers, *message.form.get("never", ())}
    message.missing = [name for name in TABLE["expected"].get(kind, ()) if name not in known]
    return message
