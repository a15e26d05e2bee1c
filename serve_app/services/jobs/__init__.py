"""Analysis jobs: accepted on one side, run to completion on the other."""
