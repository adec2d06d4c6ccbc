"""`python -m shared calibrate`: what a GPU alone can tell, beside the emulated one."""
