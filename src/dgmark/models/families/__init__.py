"""The families of models and how each reads a canvas, one module for each family."""
