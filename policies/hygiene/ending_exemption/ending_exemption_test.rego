package federator.hygiene.ending_exemption_test

import data.federator.hygiene.ending_exemption

messages(spec, instants) := {v.msg | some v in found} if {
	found := ending_exemption.violation with input as {"object": {"spec": spec}, "parameters": {"days": 14}}
		with data.fleet as {"passed": {instant: true | some instant in instants}}
}

exemptions := {"exemptions": [
	{"reason": "moves", "expires": "2026-01-31T00:00:00Z"},
	{"reason": "stays"},
	{"reason": "later", "expires": "2027-01-31T00:00:00Z"},
]}

test_ending if messages(exemptions, ["2026-01-17T00:00:00Z"]) == {`exemption "moves" ends at 2026-01-31T00:00:00Z`}

test_not_yet if {
	messages(exemptions, []) == set()
	messages({}, []) == set()
}

test_odd_objects if {
	every x in [null, "", 1, [], {}, [null]] {
		messages(x, []) == set()
		messages({"exemptions": x}, []) == set()
		messages({"exemptions": [{"reason": "r", "expires": x}]}, []) == set()
	}
}
