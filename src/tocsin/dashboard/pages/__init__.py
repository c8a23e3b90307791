"""Pages: each file has what one page, or a few that are alike, ask of the store and hand to their templates."""
