"""The catalog of bulk identities: Parquet in and out, looked up by id and by spelling."""
