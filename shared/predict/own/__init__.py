"""Any training script, unedited, on the simulated GPU."""
