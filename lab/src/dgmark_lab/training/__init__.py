"""Training of the built-in models: data, training, evaluation, export. `dgmark-lab train` runs it."""
