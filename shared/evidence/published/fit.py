"""The factors of shared/predict/estimate.py, from published speeds."""

import torch

FITTED = ("products", "layout", "memory")  # no published speed here is one of links


def halves(records):
    """Return the records of the source that sets the factors, in halves: every second in each.

    The first half sets the factors, the second shows how right they are.
    """
    speeds = [r for r in records if r["source"].startswith("timm, speeds")]
    return speeds[::2], speeds[1::2]


def factors(records):
    """Return the factors with which estimates come nearest to published times.

    Near means: least squares of the relative error.
    """
    rows = [
        [r["estimate"]["work_ms"][kind] / r["published_ms"] for kind in FITTED] for r in records
    ]
    ones = torch.ones(len(rows), 1, dtype=torch.float64)
    fitted = torch.linalg.lstsq(torch.tensor(rows, dtype=torch.float64), ones).solution
    return dict(zip(FITTED, fitted.flatten().tolist()))
