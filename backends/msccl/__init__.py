"""MSCCL: lowering schedules to its XML and language, its runtimes' rules, and a model that executes files."""
