"""Whether the record and what is made of it are whole: differences, runs of no study, runs trained again."""
