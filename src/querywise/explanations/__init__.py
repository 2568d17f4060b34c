"""Why a query's documents are ranked as they are."""
