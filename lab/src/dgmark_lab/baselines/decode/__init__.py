"""The decode sides of the published watermarks; they import torch."""
