"""What every other package uses: arrays, compiled code, threads, workers, files, progress."""
