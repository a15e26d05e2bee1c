"""Credits and jobs: one script holds the credits and writes the job, so they live together."""
