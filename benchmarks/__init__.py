"""What querywise costs, measured against what one would run instead: `python -m benchmarks`."""
