"""The table of updates that bf16 weights lose."""

import statistics

from shared.lab.records import markdown, reading, stored


def part(folder):
    """Return the table for the page."""
    records = stored.read(stored.LOST_UPDATES)
    by_script = reading.grouped(records, lambda r: r["script"])
    # The span beside the mean: scripts may differ by less than seeds do.
    table = [("script", "weights changed", "test accuracy", "seeds: lowest to highest")]
    for name, runs in by_script.items():
        changed, accuracies = ([r[key] for r in runs] for key in ("changed", "test_accuracy"))
        means = (f"{statistics.mean(values):.1%}" for values in (changed, accuracies))
        table.append((name, *means, f"{min(accuracies):.1%} to {max(accuracies):.1%}"))
    seeds = len(records) // len(by_script)  # the same for every script
    # Learning rate, updates and batch are the same in all.
    r = records[0]
    note = (
        f"Adam with a learning rate of {r['lr']:.0e}, {r['steps']} updates of {r['batch_size']} "
        f"images; means over {seeds} seeds. *Changed* counts the weights of the blocks."
    )
    return markdown.text(table, note, markdown.sources(records, stored.LOST_UPDATES))
