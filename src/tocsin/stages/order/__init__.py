"""Order: wait for rows that come behind, as long as it pays, and give rows in order of time."""
