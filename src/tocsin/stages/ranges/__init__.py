"""Range thresholding: standing queries that each wait until enough weight has fallen into their range."""
