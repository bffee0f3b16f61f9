"""The paper's tables and figures as data, run cell by cell into rows that every experiment shares, and reported."""
