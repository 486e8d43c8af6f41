"""What streams are measured beside: the disk, SQLite and Kafka."""
