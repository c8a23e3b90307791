"""Ji et al., Quality-Driven Disorder Handling for M-way Sliding Window Stream Joins, ICDE 2016."""
