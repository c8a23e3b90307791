"""Charts: drawings as SVG text out of records. Each file has the records it draws, and one function that draws them."""
