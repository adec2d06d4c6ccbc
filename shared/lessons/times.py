"""The parts of pages on time, as measured on one GPU: tables, and the sentences with figures."""

from shared.records import markdown, measured

HOST = "Intel Xeon"
# What the tables of 04, 05 and 06 show: script, images per update, at a time.
SHOWN = {
    "04_batchsize": [("03_bf16/train", 64, 64), ("03_bf16/train", 128, 128)],
    "05_grad_accum": [("03_bf16/train", 64, 64), ("04_batchsize/train", 16, 16)],
    "06_sgd": [("05_grad_accum/train", 16, 4), ("06_sgd/train", 16, 4)],
}
SHOWN["04_batchsize"] += [("04_batchsize/train", 16, 16), ("04_batchsize/train", 32, 32)]
SHOWN["05_grad_accum"] += SHOWN["06_sgd"]
SHOWN["06_sgd"] += [("06_sgd/train", 64, 16), ("06_sgd/train", 128, 32)]
SHOWN["05_grad_accum"] += SHOWN["06_sgd"][2:]


def table(folder):
    """Return the table of images at a time and images per second, of a folder's page."""
    heading = ("script", "images", "at a time", "peak GB", "ms per update", "kernels", "images/s")
    rows = [(f"{measured.gpu()}: {heading[0]}", *heading[1:])]
    for name, batch_size, at_a_time in SHOWN[folder.name]:
        run = measured.updates(name, batch_size, at_a_time)
        sizes = map(str, (run.batch_size, run.at_a_time))
        cells = measured.spread(run), f"{run.kernels:,}", f"{run.per_second:.0f}"
        link = f"[{name.partition('_')[0]}](../{name}.py)"
        rows.append((link, *sizes, f"{run.peak_gb:.2f}", *cells))
    return markdown.text(rows)


def pass_ms():
    """Return the least and the most ms that a pass takes where the host sets the pace, rounded."""
    runs = [r for r in measured.times() if r.name in ("04_batchsize/train", "06_sgd/train")]
    runs += [measured.updates("05_grad_accum/train")]
    each = [r.median / r.passes for r in runs]
    return round(min(each)), round(max(each))


def why(folder):
    """Return why small micro-batches are slow on a fast GPU, and the rule for others."""
    four = measured.updates("05_grad_accum/train")
    whole, three = measured.updates("04_batchsize/train"), measured.updates("03_bf16/train")
    least, most = pass_ms()
    image = three.median / three.batch_size
    enough = measured.updates("04_batchsize/train").median / image
    return (
        f"The GPU would be done with 05's update in about {four.busy_ms:.0f} ms. It waits for the "
        f"host, which starts {four.kernels:,} kernels instead of {whole.kernels:,}, one after the "
        f"other, and takes some {measured.LAUNCH_US} µs for each, whatever its size. So a forward "
        f"and backward pass took {least} to {most} ms there, of 4 images, of 16 or of 32: **the "
        f"number of micro-batches sets the time, not the number of images.**\n\n"
        f"*On another card*, compare the kernels of a pass, times {measured.LAUNCH_US} µs, with "
        f"the time that the GPU itself takes for it. An H200 takes {image:.1f} ms for an image, so "
        f"the host decides below about {enough:.0f} images at a time; a card that is 20 times "
        f"slower is busy from 2 or 3 on, and loses hardly anything.\n\n"
        f"*What to do*: take the largest micro-batch that fits. Before it becomes small, "
        f"[checkpoint activations](../09_act_ckpt/one_gpu.py), which costs arithmetic, not "
        f'passes. CUDA graphs (`torch.compile(mode="reduce-overhead")`) start many kernels at '
        f"once, and keep memory of their own."
    )


def ratio(folder, name, to, figure="time"):
    """Return how many times as long an update, or an image, of a script takes as of another."""
    runs = [measured.updates(one) for one in (name, to)]
    ms = [r.median / (r.batch_size if figure == "image" else 1) for r in runs]
    return f"{ms[0] / ms[1]:.1f}"
