"""The REST API: OpenAI's files, batches and models, and Nightmill's own jobs, for many tenants."""
