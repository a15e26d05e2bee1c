"""Ray Serve deployments: thin classes that wire pipelines and services to replicas."""
