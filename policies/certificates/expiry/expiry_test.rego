package federator.certificates.expiry_test

import data.federator.certificates.expiry

entry(member, not_after, expired) := {
	"ref": {"member": member, "kind": "Certificate.cert-manager.io", "namespace": "shop", "name": "web"},
	"value": {"notAfter": not_after, "expired": expired},
}

soon := "2026-12-01T00:00:00Z"

late := "2027-03-01T00:00:00Z"

# found is what is found on 2026-12-11, when a week is left of 2026-12-18.
found(entries, days) := violations if {
	violations := expiry.violation with input as {"key": "a.example", "entries": entries, "parameters": {"days": days}}
		with data.fleet as {"passed": passed}
}

passed := {
	"2026-11-10T00:00:00Z": true, "2026-12-03T00:00:00Z": true,
	"2001-01-01T00:00:00Z": true, "2026-12-11T00:00:00Z": true,
}

messages(entries) := {v.msg | some v in found(entries, 21)}

names(object) := {name: values |
	views := expiry.view with input as {
		"ref": {"member": "fleet/eu-1", "kind": "Certificate.cert-manager.io", "namespace": "shop", "name": "web"},
		"object": object,
	}
	some name, values in views.names
}

test_the_only_one_expires if {
	found([entry("fleet/eu-1", soon, false)], 21) == {{
		"msg": "expires at 2026-12-01T00:00:00Z in fleet/eu-1 shop/web; lasts nowhere else",
		"details": {"certificates": [{"ref": entry("fleet/eu-1", "", false).ref, "notAfter": soon}]},
	}}
}

test_another_member_has_one if {
	messages([entry("fleet/eu-1", soon, false), entry("fleet/us-1", late, false)]) == {"expires at 2026-12-01T00:00:00Z in fleet/eu-1 shop/web; lasts in fleet/us-1 shop/web"}
}

test_several_expire if {
	messages([entry("fleet/eu-1", "2026-12-24T00:00:00Z", false), entry("fleet/us-1", soon, false)]) == {"expires at 2026-12-01T00:00:00Z in fleet/eu-1 shop/web and fleet/us-1 shop/web; lasts nowhere else"}
}

test_all_last if {
	messages([entry("fleet/eu-1", late, false), entry("fleet/us-1", "2027-01-02T00:00:00Z", false)]) == set()
	messages([]) == set()
}

test_days if {
	found([entry("fleet/eu-1", "2026-12-18T00:00:00Z", false)], 6) == set()
	count(found([entry("fleet/eu-1", "2026-12-18T00:00:00Z", false)], 7)) == 1
	count(found([entry("fleet/eu-1", "2001-01-01T00:00:00Z", false)], 0)) == 1
}

test_expired_by_cert_manager if {
	{v.msg | some v in found([entry("fleet/eu-1", late, true)], 21)} == {"expires at 2027-03-01T00:00:00Z in fleet/eu-1 shop/web; lasts nowhere else"}
}

certificate(spec, status) := {"spec": spec, "status": status}

test_names if {
	issued := {"notAfter": soon, "conditions": [{"type": "Ready", "status": "True", "reason": "Ready"}]}
	value := {{"notAfter": soon, "expired": false}}
	names(certificate({"dnsNames": ["a.example", "*.example", ""], "commonName": "b.example"}, issued)) == {"a.example": value, "*.example": value, "b.example": value}
	names(certificate({"ipAddresses": ["10.0.0.1"], "commonName": ""}, issued)) == {}
}

test_expired if {
	expired := {"notAfter": soon, "conditions": [{"type": "Issuing", "status": "True"}, {"type": "Ready", "status": "False", "reason": "Expired"}]}
	names(certificate({"dnsNames": ["a.example"]}, expired)) == {"a.example": {{"notAfter": soon, "expired": true}}}
	failing := {"notAfter": soon, "conditions": [{"type": "Ready", "status": "False", "reason": "Renewing"}, {"type": "Other", "status": "False", "reason": "Expired"}]}
	names(certificate({"dnsNames": ["a.example"]}, failing)) == {"a.example": {{"notAfter": soon, "expired": false}}}
}

test_never_issued if {
	every status in [{}, {"conditions": []}, {"conditions": [{"type": "Ready", "status": "False", "reason": "DoesNotExist"}]}] {
		names(certificate({"dnsNames": ["a.example"]}, status)) == {}
	}
}

test_odd_objects if {
	every x in [null, "", "x", 1, true, [], {}, [null], {"": null}] {
		names(certificate(x, {"notAfter": soon})) == {}
		names(certificate({"dnsNames": ["a.example"]}, x)) == {}
		names(certificate({"dnsNames": ["a.example"]}, {"notAfter": x})) == {}
		names(certificate({"dnsNames": ["a.example"]}, {"notAfter": soon, "conditions": x})) == {"a.example": {{"notAfter": soon, "expired": false}}}
		names(certificate({"dnsNames": x}, {"notAfter": soon})) == {}
	}
	every x in [null, 1, true, [], {}] {
		names(certificate({"commonName": x, "dnsNames": [x]}, {"notAfter": soon})) == {}
	}
	every time in ["2026-12-01", "2026-12-01T00:00:00+02:00", "tomorrow"] {
		names(certificate({"dnsNames": ["a.example"]}, {"notAfter": time})) == {}
	}
}
