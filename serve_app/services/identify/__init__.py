"""Who a recording is: earlier answers, the cascade of recognisers, enrichment."""
