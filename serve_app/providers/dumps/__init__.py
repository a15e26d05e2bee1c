"""Published dumps, turned into Parquet for the catalog."""
