"""Any training script, unedited, on an emulated GPU."""
