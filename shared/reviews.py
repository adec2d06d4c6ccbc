"""Made-up film reviews: a data set for trying things out, written by a program from word lists and sentence patterns.

Nothing here was ever said of a film. The set is small and regular on purpose, so that a small model learns it in a
minute on a laptop. Single words do not always give the answer away (some opinions are denied, and some reviews take back
what they said before), but what a model achieves here says nothing about real language: for that there is --data.
"""

import random

GOOD = "brilliant charming clever convincing delightful elegant funny gripping honest inventive lovely moving sharp tender touching warm witty wonderful".split()
BAD = "awkward bland boring careless clumsy confusing dull empty flat forced lazy loud pointless predictable shallow slow stale tedious".split()
THINGS = "acting, camera work, cast, dialogue, direction, ending, film, lead actor, middle part, movie, music, opening, pacing, plot, script, second half, story, title song".split(", ")
DEGREES = ["", "", "really ", "rather ", "truly ", "quite ", "utterly "]
NEGATIONS = ["not {}", "never {}", "not {} at all", "anything but {}", "far from {}", "not in the least {}", "hardly {}"]
OPINIONS = ["the {thing} is {word}", "the {thing} was {word}", "I found the {thing} {word}", "to me the {thing} felt {word}", "the {thing} turned out {word}"]
TURNS = ["{first}, but {second}", "although {first}, {second}", "{first}; in the end, however, {second}", "they say that {first}, yet {second}"]
VERDICTS = {1: ["I would see it again", "go and see it", "it stays with you", "an evening well spent"], 0: ["I left early", "save your money", "I was glad when it was over", "an evening wasted"]}
FRAMES = ["{}.", "Seen on {day}: {}.", "We watched it with {who}. {}.", "{}. That is all I can say.", "After {n} minutes it was clear: {}."]
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
COMPANY = "friends, my sister, two colleagues, our neighbours, the children, my father".split(", ")
CLASSES = ("negative", "positive")
SEED = 0


def opinion(rng, good):
    """Returns a sentence without its full stop that says something good or bad, one in five by denying the contrary."""
    if rng.random() < 0.2:
        word = rng.choice(NEGATIONS).format(rng.choice(BAD if good else GOOD))
    else:
        word = rng.choice(DEGREES) + rng.choice(GOOD if good else BAD)
    return rng.choice(OPINIONS).format(thing=rng.choice(THINGS), word=word)


def review(rng, good):
    """Returns a review; in one of five, the first half says the contrary, and the second counts."""
    kind = rng.random()
    if kind < 0.2:
        text = rng.choice(TURNS).format(first=opinion(rng, not good), second=opinion(rng, good))
    elif kind < 0.5:
        text = opinion(rng, good)
    elif kind < 0.7:
        text = f"{opinion(rng, good)} and {opinion(rng, good)}"
    else:
        text = f"{opinion(rng, good)}: {rng.choice(VERDICTS[good])}"
    frame = rng.choice(FRAMES)
    return frame.format(text, day=rng.choice(DAYS), who=rng.choice(COMPANY), n=rng.choice((5, 10, 20, 40)))


def reviews(n):
    """Returns n different reviews and their labels, half of them positive; always the same ones."""
    rng, texts = random.Random(SEED), {}
    while len(texts) < n:
        good = len(texts) % 2
        texts.setdefault(review(rng, bool(good)), good)
    return list(texts), list(texts.values())
