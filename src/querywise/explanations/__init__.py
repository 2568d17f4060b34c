"""Why a query's documents stand in their order."""
