"""Large models on up to a thousand GPUs: 11_llm, one emulated rank of many, for its lesson page.

`python -m shared records scale` emulates them, one after the other, and stores the records: the
memory of a GPU, and the memory and seconds of this computer. Tensor, pipeline and context
parallelism at this scale are torchtitan's: see shared/emulator/proof/sources.toml.
"""

import functools
import resource

from torch.distributed import fsdp
from torch.distributed.device_mesh import init_device_mesh

from emulated_gpu.cards import CARDS
from shared.lab.predict import techniques
from shared.lab.predict.jobs import Wanted, run_jobs
from shared.lab.predict.stage import predict
from shared.lab.records import stored
from shared.run.cli import Parser

# All but the last, which is offloading: at this scale the shards are small without it.
TECHNIQUES = techniques.TOGETHER[:-1]
TOKENS = 8192  # of the one text of each GPU
RUNS = (  # model, GPUs, and GPUs in a group that has all shards (HSDP), if they are not all
    ("meta-llama/Meta-Llama-3-8B", 8, None),
    ("meta-llama/Meta-Llama-3-8B", 128, None),
    ("meta-llama/Meta-Llama-3-70B", 64, None),
    ("meta-llama/Meta-Llama-3-70B", 256, None),
    ("meta-llama/Meta-Llama-3-70B", 256, 64),
    ("meta-llama/Llama-3.1-405B", 512, None),
    ("meta-llama/Llama-3.1-405B", 1024, None),
)


def wanted(model, gpus):
    """Return the settings of a run."""
    return Wanted(
        "full",
        model=model,
        max_length=TOKENS,
        batch_size=gpus,
        devices=gpus,
        technique=TECHNIQUES[-1],
        card=CARDS["h100"],
        card_gb=CARDS["h100"].gb,  # all that PyTorch may reserve
    )


def emulate(options, group):
    """Return the record of a run, with the memory in GB that its process took on this host."""
    if group:
        _shard_within(group, options.devices)
    record = predict(techniques.script(TECHNIQUES), options)
    kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # Linux counts in KiB
    return {**record, "group": group, "here_gb": kib * 1024 / 1e9}


def _shard_within(group, gpus):
    """Let fully_shard() shard within groups of GPUs, as 08_fsdp/hsdp.py does."""
    shard = fsdp.fully_shard
    names = ("copies", "shards")
    sizes = (gpus // group, group)
    # Made at the first call: a mesh needs the process group, which the script begins.
    mesh = functools.cache(lambda: init_device_mesh("cuda", sizes, mesh_dim_names=names))
    fsdp.fully_shard = lambda unit, **options: shard(unit, **{**options, "mesh": mesh()})


def main(argv=None):
    Parser(description=__doc__.splitlines()[0]).parse_args(argv)
    # One after the other, so that the seconds are those of a run by itself.
    records = [run_jobs([(emulate, wanted(model, gpus), group)])[0] for model, gpus, group in RUNS]
    stored.write_made_by("scale", stored.SCALE, records)
