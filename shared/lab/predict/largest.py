"""A search for the largest size that fits, with few trials: each is an update of a large model."""

MOST = 1_000_000  # images at once; the search stops here
STEEPEST = 32  # the next size is at most so many times the last: the first points may mislead
PATIENCE = 8  # trials, after which the search bisects


def largest(needs, budget, guess, most=MOST):
    """Return the largest n from 1 to `most` with needs(n) <= budget, 0 if there is none.

    The search begins at `guess` and extrapolates through the last two points, because the memory of
    an update is nearly linear in its size. If that takes long, it bisects instead.
    """
    fits = 0
    too_many = most + 1
    points = []  # (n, what it needs)
    while too_many - fits > 1:
        needed = needs(guess)
        points.append((guess, needed))
        if needed <= budget:
            fits = guess
        else:
            too_many = guess
        guess = _next(points, budget, fits, too_many, most)
        guess = min(max(guess, fits + 1), too_many - 1)
    return fits


def _next(points, budget, fits, too_many, most):
    """Return the size to try next, which may lie outside of the range that is left to search."""
    if len(points) == 1:
        return 2 * fits if fits else too_many // 2
    if len(points) > PATIENCE and too_many <= most:
        return (fits + too_many) // 2
    (a, needs_a), (b, needs_b) = points[-2:]
    slope = max((needs_b - needs_a) / (b - a), 1e-9)
    return min(int(b + (budget - needs_b) / slope), STEEPEST * b)
