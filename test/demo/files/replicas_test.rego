package platform.replicas_test

import data.platform.replicas

app(n) := {"object": {"metadata": {"labels": {"tier": "critical"}}, "spec": {"replicas": n}}, "parameters": {"replicas": 2}}

test_too_few if count(replicas.violation) == 1 with input as app(0)

test_enough if count(replicas.violation) == 0 with input as app(2)
