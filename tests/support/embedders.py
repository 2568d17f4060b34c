"""Names of embedders that a folder may not ask for."""

from __future__ import annotations

NAMED = [
    "static:/etc",
    "static:~/x",
    "static:../..",
    "static:/proc/self/fd",
    "static://evil/share",
    "STATIC:/etc",
    "Static",
    "lsa:/etc",
    "LSA",
    "sentence-transformers:evil/model",
    "sentence-transformers:/tmp",
    "sentence-transformers:../x",
    "file:///etc/passwd",
    "http://evil.test/v1/embeddings",
    "HTTP://evil.test/v1/embeddings",
    "https://evil.test/v1/embeddings#m",
    "http://localhost:9@evil.test/embeddings",
    "http://localhost:9\\@evil.test/embeddings",
    "http://localhost:9.evil.test/embeddings",
    "http://localhost:90/embeddings",
    "https://localhost:9/embeddings",
    "http://127.0.0.1:9/v1/embeddings",
    "http://localhost:9/admin",
    "http://localhost:9/admin?x=/embeddings",
    "http://localhost:9/v1/../admin/embeddings",
]
