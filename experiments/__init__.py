"""What is run, against which published number."""
