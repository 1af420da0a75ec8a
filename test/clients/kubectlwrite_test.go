package clients

var writeRows = []row{
	{
		act: "`create configmap new --from-literal=a=b -n depot --dry-run=server`", do: prints("create", "configmap", "new", "--from-literal=a=b", "-n", "{depot}", "--dry-run=server"),
		real: "`configmap/new created (server dry run)`", fleet: says("`error: failed to create configmap: create is not supported on resources of kind \"configmaps\": the query API only reads; ask a member itself, as with kubectl --context`"), flat: says("`error: failed to create configmap: create is not supported on resources of kind \"configmaps\": the query API only reads; ask acme/eu-1 itself, as with kubectl --context`"), members: says("`error: failed to create configmap: create is not supported on resources of kind \"configmaps\": the query API only reads; ask acme/eu-1 itself, as with kubectl --context`"),
	},
	{
		act: "`label pod web-0 -n shop a=b --dry-run=server`", do: prints("label", "pod", "web-0", "-n", "{shop}", "a=b", "--dry-run=server"),
		real: "`pod/web-0 labeled (server dry run)`", fleet: says("`Error from server (AmbiguousName): pods \"web-0\" is ambiguous, 3 members have it: …`"), flat: says("`Error from server (MethodNotAllowed): patch is not supported on resources of kind \"pods\": the query API only reads; ask acme/eu-1 itself, as with kubectl --context`"), members: says("`Error from server (MethodNotAllowed): patch is not supported on resources of kind \"pods\": the query API only reads; ask acme/eu-1 itself, as with kubectl --context`"),
	},
	{
		act: "`scale deployment web -n shop --replicas=3 --dry-run=server`", do: prints("scale", "deployment", "web", "-n", "{shop}", "--replicas=3", "--dry-run=server"),
		real: "`deployment.apps/web scaled (server dry run)`", fleet: says("`Error from server (AmbiguousName): deployments.apps \"web\" is ambiguous, 3 members have it: …`"), flat: says("`Error from server (MethodNotAllowed): patch is not supported on resources of kind \"deployments.apps\": the query API only reads; ask acme/eu-1 itself, as with kubectl --context`"), members: says("`Error from server (MethodNotAllowed): patch is not supported on resources of kind \"deployments.apps\": the query API only reads; ask acme/eu-1 itself, as with kubectl --context`"),
	},
	{
		act: "`set image deployment/web -n shop web=other --dry-run=server`", do: prints("set", "image", "deployment/web", "-n", "{shop}", "web=other", "--dry-run=server"),
		real: "`deployment.apps/web image updated (server dry run)`", fleet: says("`Error from server (AmbiguousName): deployments.apps \"web\" is ambiguous, 3 members have it: …`"), flat: says("`error: failed to patch image update to pod template: patch is not supported on resources of kind \"deployments.apps\": the query API only reads; ask acme/eu-1 itself, as with kubectl --context`"), members: says("`error: failed to patch image update to pod template: patch is not supported on resources of kind \"deployments.apps\": the query API only reads; ask acme/eu-1 itself, as with kubectl --context`"),
	},
	{
		act: "`delete pod web-0 -n shop --dry-run=server`", do: prints("delete", "pod", "web-0", "-n", "{shop}", "--dry-run=server"),
		real: "`pod \"web-0\" deleted from shop namespace (server dry run)`", fleet: says("`Error from server (MethodNotAllowed): delete is not supported on resources of kind \"pods\": the query API only reads; ask a member itself, as with kubectl --context`"), flat: says("`Error from server (MethodNotAllowed): delete is not supported on resources of kind \"pods\": the query API only reads; ask acme/eu-1 itself, as with kubectl --context`"), members: says("`Error from server (MethodNotAllowed): delete is not supported on resources of kind \"pods\": the query API only reads; ask acme/eu-1 itself, as with kubectl --context`"),
	},
	{
		act: "`cordon node-1 --dry-run=server`", do: prints("cordon", "{node-1}", "--dry-run=server"),
		real: "`node/node-1 cordoned (server dry run)`", fleet: says("`Error from server (AmbiguousName): nodes \"node-1\" is ambiguous, 3 members have it: …`"), flat: says("`error: unable to cordon node \"acme.eu-1.node-1\": patch is not supported on resources of kind \"nodes\": the query API only reads; ask a member itself, as with kubectl --context`"), members: says("`error: unable to cordon node \"node-1\": patch is not supported on resources of kind \"nodes\": the query API only reads; ask acme/eu-1 itself, as with kubectl --context`"),
	},
	{
		act: "`rollout undo deployment/web -n shop --dry-run=server`", do: prints("rollout", "undo", "deployment/web", "-n", "{shop}", "--dry-run=server"),
		real: "`error: no rollout history found for deployment \"web\"`", fleet: says("`Error from server (AmbiguousName): deployments.apps \"web\" is ambiguous, 3 members have it: …`"), flat: says("`error: no rollout history found for deployment \"web\"`"), members: says("`error: no rollout history found for deployment \"web\"`"),
	},
	{
		act: "`create token web -n shop`", do: prints("create", "token", "web", "-n", "{shop}"),
		real: "`a token`", fleet: says("`error: failed to create token: create is not supported on resources of kind \"serviceaccounts\": the query API only reads; ask a member itself, as with kubectl --context`"), flat: says("`error: failed to create token: create is not supported on resources of kind \"serviceaccounts\": the query API only reads; ask acme/eu-1 itself, as with kubectl --context`"), members: says("`error: failed to create token: create is not supported on resources of kind \"serviceaccounts\": the query API only reads; ask acme/eu-1 itself, as with kubectl --context`"),
	},
	{
		act: "`expose deployment web -n shop --port=80 --name=other --dry-run=server`", do: prints("expose", "deployment", "web", "-n", "{shop}", "--port=80", "--name=other", "--dry-run=server"),
		real: "`service/other exposed (server dry run)`", fleet: says("`Error from server (AmbiguousName): deployments.apps \"web\" is ambiguous, 3 members have it: …`"), flat: says("`Error from server (MethodNotAllowed): create is not supported on resources of kind \"services\": the query API only reads; ask acme/eu-1 itself, as with kubectl --context`"), members: says("`Error from server (MethodNotAllowed): create is not supported on resources of kind \"services\": the query API only reads; ask acme/eu-1 itself, as with kubectl --context`"),
	},
}
