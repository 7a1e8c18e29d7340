"""What a notebook shows of tenscope: results as HTML, and what a terminal would get on stderr."""
