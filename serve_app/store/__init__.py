"""Storage of money, jobs, keys, caches and uploaded audio, in Redis and object stores."""
