package federator.lib.selector_test

import data.federator.lib.selector

labels := {"app": "web", "tier": "front", "empty": ""}

one(operator, key, values) := {"matchExpressions": [{"operator": operator, "key": key, "values": values}]}

test_everything if {
	every x in [{}, {"matchLabels": {}}, {"matchLabels": null, "matchExpressions": null}, {"matchExpressions": []}] {
		selector.matches(x, labels)
		selector.matches(x, {})
	}
}

test_nothing if {
	every x in [null, "", 1, true, [], {"matchLabels": []}, {"matchLabels": "app"}, {"matchExpressions": {}}, {"matchExpressions": [null]}] {
		not selector.matches(x, labels)
	}
}

test_labels if {
	selector.matches({"matchLabels": {"app": "web"}}, labels)
	selector.matches({"matchLabels": {"app": "web", "tier": "front"}}, labels)
	not selector.matches({"matchLabels": {"app": "web", "tier": "back"}}, labels)
	not selector.matches({"matchLabels": {"stage": "web"}}, labels)
	not selector.matches({"matchLabels": {"app": "web"}}, {})
}

test_in if {
	selector.matches(one("In", "app", ["api", "web"]), labels)
	not selector.matches(one("In", "app", ["api"]), labels)
	not selector.matches(one("In", "stage", ["web"]), labels)
	not selector.matches(one("In", "app", null), labels)
}

test_not_in if {
	selector.matches(one("NotIn", "app", ["api"]), labels)
	selector.matches(one("NotIn", "stage", ["web"]), labels)
	not selector.matches(one("NotIn", "app", ["api", "web"]), labels)
}

test_exists if {
	selector.matches(one("Exists", "empty", null), labels)
	not selector.matches(one("Exists", "stage", []), labels)
	selector.matches(one("DoesNotExist", "stage", null), labels)
	not selector.matches(one("DoesNotExist", "empty", []), labels)
}

test_all_of_them if {
	both := object.union({"matchLabels": {"app": "web"}}, one("NotIn", "tier", ["back"]))
	selector.matches(both, labels)
	not selector.matches(both, {"app": "web", "tier": "back"})
	not selector.matches(both, {"tier": "front"})
}

test_unknown_operators if {
	not selector.matches(one("Near", "app", ["web"]), labels)
	not selector.matches({"matchExpressions": [{}]}, labels)
}
