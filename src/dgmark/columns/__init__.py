"""Batches of rows in, the same with more columns out: of Ray Data, Spark, datasets, pandas, polars and Arrow."""
