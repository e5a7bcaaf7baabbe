"""Objects in AWS S3 and compatible services, by boto3."""
