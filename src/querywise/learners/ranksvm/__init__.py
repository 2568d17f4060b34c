"""The ranking SVM, and joint training of its local models."""
