package federator.exposure.ingress_tls_test

import data.federator.exposure.ingress_tls

parameters := {"annotations": ["alb.ingress.kubernetes.io/certificate-arn"], "plainHosts": ["plain.example.org"]}

ingress(annotations, spec) := {
	"ref": {"member": "fleet/eu-1", "kind": "Ingress.networking.k8s.io", "namespace": "shop", "name": "web"},
	"object": {"metadata": {"annotations": annotations}, "spec": spec},
	"member": {"name": "fleet/eu-1", "labels": {}},
	"parameters": parameters,
}

messages(subject) := {v.msg | some v in ingress_tls.violation with input as subject}

serving(hosts, tls) := ingress({}, {"rules": [{"host": host} | some host in hosts], "tls": tls})

without_tls(host) := {sprintf("host %s is served without TLS", [host])}

catch_all := {"the default backend, or a rule without a host, is served without TLS"}

test_without_tls if {
	messages(ingress({}, {"rules": [{"host": "a.example.org"}]})) == without_tls("a.example.org")
	messages(serving(["a.example.org", "b.example.org"], [{"hosts": ["a.example.org"]}])) == without_tls("b.example.org")
}

test_with_tls if {
	messages(serving(["a.example.org"], [{"hosts": ["a.example.org"], "secretName": "a"}])) == set()
	messages(serving(["a.example.org", "b.example.org"], [{"hosts": ["a.example.org"]}, {"hosts": ["b.example.org"]}])) == set()
}

test_wildcards if {
	star := [{"hosts": ["*.example.org"]}]
	messages(serving(["a.example.org", "*.example.org"], star)) == set()
	messages(serving(["example.org"], star)) == without_tls("example.org")
	messages(serving(["a.b.example.org"], star)) == without_tls("a.b.example.org")
	messages(serving(["*.example.org"], [{"hosts": ["a.example.org"]}])) == without_tls("*.example.org")
}

test_tls_without_hosts if {
	every entry in [{"secretName": "all"}, {"hosts": []}, {"hosts": null}, {}] {
		messages(serving(["a.example.org"], [entry])) == set()
		messages(ingress({}, {"defaultBackend": {"service": {"name": "web"}}, "tls": [entry]})) == set()
	}
}

test_catch_all if {
	messages(ingress({}, {"defaultBackend": {"service": {"name": "web"}}})) == catch_all
	messages(ingress({}, {"rules": [{"http": {"paths": []}}]})) == catch_all
	messages(ingress({}, {"rules": [{"host": ""}]})) == catch_all
	messages(ingress({}, {"rules": [{"host": ""}], "tls": [{"hosts": ["a.example.org"]}]})) == catch_all
}

test_certificates_from_elsewhere if {
	spec := {"rules": [{"host": "a.example.org"}, {}]}
	messages(ingress({"alb.ingress.kubernetes.io/certificate-arn": "arn:aws:acm:1"}, spec)) == set()
	every x in ["", null, {}, 1] {
		count(messages(ingress({"alb.ingress.kubernetes.io/certificate-arn": x}, spec))) == 2
	}
}

test_plain_hosts if {
	messages(serving(["plain.example.org"], [])) == set()
}

test_odd_objects if {
	every x in [null, "", "x", 1, true, [], {}, [null], [[]], {"": null}] {
		messages(ingress({}, x)) == set()
		messages(ingress(x, {"rules": [{"host": "a.example.org"}]})) == without_tls("a.example.org")
		messages(ingress({}, {"rules": [{"host": "a.example.org"}], "tls": x})) == without_tls("a.example.org")
		messages(serving(["a.example.org"], [{"hosts": [x]}])) == without_tls("a.example.org")
	}
	every x in [null, "", 1, [], {}, [null], [[]]] {
		messages(ingress({}, {"rules": x})) == set()
	}
	every x in ["", 1, {"": null}] {
		messages(serving(["a.example.org"], [{"hosts": x}])) == without_tls("a.example.org")
	}
	every x in [1, true, [], {}] {
		messages(serving([x], [])) == set()
	}
	every x in [".", "..", "*", "a"] {
		messages(serving([x], [])) == without_tls(x)
	}
	messages({"object": {}, "parameters": parameters}) == set()
}
