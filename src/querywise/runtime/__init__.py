"""The foundation of all other packages: arrays, compiled code, threads, workers, files, progress."""
