"""Credits and jobs, together because one script both holds the credits and writes the job."""
