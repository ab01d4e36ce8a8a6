"""Programs that run other libraries, each with the Python of that library's environment. No module imports them."""
