"""Programs with published measurements, on emulated GPUs, beside the published figures."""
