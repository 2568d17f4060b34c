"""The ranking SVM, and all local ones together."""
