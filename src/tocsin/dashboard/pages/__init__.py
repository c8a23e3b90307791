"""Pages: each module queries the store for one page or a few similar pages, and renders their templates."""
