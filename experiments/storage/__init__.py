"""Folders of records, storage that several machines share, and the inputs that runs read."""
