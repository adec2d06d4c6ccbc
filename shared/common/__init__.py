"""What all other folders build on: options, how scripts end, which there are, loaders, files."""

from shared.common import environment, writing

# Before PyTorch and Lightning are imported.
environment.set_aside()
writing.standard_streams()
