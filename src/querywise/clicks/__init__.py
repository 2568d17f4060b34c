"""Click logs: impressions, click models, what a log can tell, and judgments with their uncertainty."""
