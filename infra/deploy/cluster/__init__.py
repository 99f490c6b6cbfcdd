"""`make cluster`: Kafka, PostgreSQL, an S3 server and Ray on this machine, for development and tests.

Standard library only. Every service is a process of its own with a folder, a log and a health check; starting what runs
and stopping what does not are no errors.
"""
