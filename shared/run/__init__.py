"""Parts of every script's run: options, devices, data loaders, the record, saving, errors."""
