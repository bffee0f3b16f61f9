"""The families of models: how each reads a canvas, one module a family."""
