"""What all other folders build on: options, how scripts end, which there are, loaders, files."""
