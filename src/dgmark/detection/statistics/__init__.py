"""The tests of texts: the statistic of each rule, its exact distribution without the key, and p-values."""
