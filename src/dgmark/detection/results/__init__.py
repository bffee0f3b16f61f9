"""What a test found: findings, verdicts and the sentences that say them."""
