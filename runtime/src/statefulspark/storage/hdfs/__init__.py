"""Objects as files in HDFS."""
