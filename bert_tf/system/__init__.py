"""Files, processes, the terminal, hosts and imports at start-up; imports nothing of bert_tf."""
