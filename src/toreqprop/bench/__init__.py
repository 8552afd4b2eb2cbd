"""The multi-task benchmark: runs, their statistics, and the reports that render them."""
