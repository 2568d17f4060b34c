"""What every room stands on: arrays, compiled code, threads, workers, files, progress."""
