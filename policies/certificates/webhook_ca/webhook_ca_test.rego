package federator.certificates.webhook_ca_test

import data.federator.certificates.webhook_ca

# early ends on 2026-06-01, late ten years later.
early := "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCk1JSUJTekNCOGFBREFnRUNBZ0VCTUFvR0NDcUdTTTQ5QkFNQ01CVXhFekFSQmdOVkJBTVRDbmRsWW1odmIyc3QKWTJFd0hoY05NalV3TmpBeE1EQXdNREF3V2hjTk1qWXdOakF4TURBd01EQXdXakFWTVJNd0VRWURWUVFERXdwMwpaV0pvYjI5ckxXTmhNRmt3RXdZSEtvWkl6ajBDQVFZSUtvWkl6ajBEQVFjRFFnQUVKQVZNUmpEaXhtdG5yZE5yCmR2YW00Y1BBRzR4SVJ4OFdERDgwQytKVHBZMm5USGU0Q2FtYVZIcWY4N0pJc3BISGRCelZiK2hHWUxDMllyRGgKR3RLeU1LTXlNREF3RHdZRFZSMFRBUUgvQkFVd0F3RUIvekFkQmdOVkhRNEVGZ1FVYW5GRWhxYVFtQWEzVm9LRQp4ZlFxMk5pRnBEZ3dDZ1lJS29aSXpqMEVBd0lEU1FBd1JnSWhBTnU5NEVCMFE4UlFyWjdqMklsTHdhQ2ltdlJ1CjZOcExqZm1rbEYwVnY0aW9BaUVBNWF0amg1U1I0MDhQN2FxdmlYSnhseWRPb1pCaXFwYkVLc1dvSS9aMDFBdz0KLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo="

late := "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCk1JSUJTVENCOGFBREFnRUNBZ0VDTUFvR0NDcUdTTTQ5QkFNQ01CVXhFekFSQmdOVkJBTVRDbmRsWW1odmIyc3QKWTJFd0hoY05NelV3TmpBeE1EQXdNREF3V2hjTk16WXdOakF4TURBd01EQXdXakFWTVJNd0VRWURWUVFERXdwMwpaV0pvYjI5ckxXTmhNRmt3RXdZSEtvWkl6ajBDQVFZSUtvWkl6ajBEQVFjRFFnQUVBT3FyNVFNUW5IUm5kMGNWCnlQOEw4Mmd6V3h6bjdGWitROWRLeDJXMkdVWjIxcjJhcGRQMUFKYjhqZXF2TW9DVEdoZktpK2xZcUIyOUwzTnkKekxqVndLTXlNREF3RHdZRFZSMFRBUUgvQkFVd0F3RUIvekFkQmdOVkhRNEVGZ1FVYlQ3V2JJYkdkcElReDN0QwpEeVlRRGt6Y3VMY3dDZ1lJS29aSXpqMEVBd0lEUndBd1JBSWdJNE5VbTBWRzVmNGVkVFNEOUJxZFErQ05EZnNoCjBhcHRvaDN6VXJQTmUxSUNJRlFkdXZjWHZ5L2Jtb2xzSEZxeFVXeGFCL2lWSVo0ZHhxV3k3OWhac1ZQNAotLS0tLUVORCBDRVJUSUZJQ0FURS0tLS0tCg=="

both := base64.encode(concat("", [base64.decode(early), base64.decode(late)]))

ref := {"member": "fleet/eu-1", "kind": "ValidatingWebhookConfiguration.admissionregistration.k8s.io", "namespace": "", "name": "check"}

messages(webhooks, instants) := {v.msg | some v in found} if {
	found := webhook_ca.violation with input as {"ref": ref, "object": {"webhooks": webhooks}, "parameters": {"days": 30}}
		with data.fleet as {"passed": {instant: true | some instant in instants}}
}

webhook(bundle) := {"name": "check.example.com", "clientConfig": {"caBundle": bundle}}

may := ["2026-05-02T00:00:00Z"]

test_ends if messages([webhook(early)], may) == {"the CA bundle of webhook check.example.com expires at 2026-06-01T00:00:00Z"}

test_lasts if {
	messages([webhook(early)], []) == set()
	messages([webhook(late)], may) == set()
	messages([webhook(both)], may) == set()
	messages([{"name": "check.example.com", "clientConfig": {}}], may) == set()
}

test_no_certificates if {
	every bundle in ["!", base64.encode("nothing")] {
		messages([webhook(bundle)], may) == {"the CA bundle of webhook check.example.com has no certificates in PEM"}
	}
}

test_odd_objects if {
	every x in [null, "", 1, [], {}, [null]] {
		messages(x, may) == set()
		messages([x], may) == set()
		messages([webhook(x)], may) == set()
		messages([{"name": "check.example.com", "clientConfig": x}], may) == set()
	}
}
