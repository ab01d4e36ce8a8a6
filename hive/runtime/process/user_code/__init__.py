"""Code of users inside of hive's processes: kept apart, watched, and its errors passed on."""
