"""Analysis jobs: taken in on one side, run to their end on the other."""
