"""What the commands share: options, messages, tables in the terminal."""
