package platform.memory_test

import data.platform.memory

app(m) := {"spec": {"template": {"spec": {"containers": [{"resources": {"requests": {"memory": m}}}]}}}}

test_other if count(memory.violation) == 1 with input as {"object": app("16Mi"), "parameters": {"memory": "64Mi"}}

test_same if count(memory.violation) == 0 with input as {"object": app("64Mi"), "parameters": {"memory": "64Mi"}}
