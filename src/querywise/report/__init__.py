"""Format results as tables, figures and pages, without computing anything."""
