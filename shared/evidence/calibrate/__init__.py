"""`python -m shared.evidence.calibrate`: what a GPU alone can tell, beside the emulated one."""
