"""The `stragglar` command line: thin; every command calls the library and prints what it says."""
