"""What a study is made of."""
