"""Everything between the input files and the result files: Parquet, JSONL, prompts, staged files, parts."""
