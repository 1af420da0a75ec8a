package acme.tier_test

import data.acme.tier

test_no_tier if {
	count(tier.violation) == 1 with input as {"object": {"metadata": {"labels": {"managed": "yes"}}}}
}

test_tier if {
	count(tier.violation) == 0 with input as {"object": {"metadata": {"labels": {"managed": "yes", "tier": "gold"}}}}
}
