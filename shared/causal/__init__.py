"""What scripts use that teach a model to go on with texts: cli, data, models."""
