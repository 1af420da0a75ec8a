package clients

var readRows = []row{
	{
		act: "`describe pod web-0 -n shop`", do: pages("describe", "pod", "web-0", "-n", "{shop}"),
		real: "37 lines", fleet: says("`Error from server (AmbiguousName): pods \"web-0\" is ambiguous, 3 members have it: …`"), flat: same, members: same,
	},
	{
		act: "`describe node node-1`", do: pages("describe", "node", "{node-1}"),
		real: "40 lines", fleet: says("`Error from server (AmbiguousName): nodes \"node-1\" is ambiguous, 3 members have it: …`"), flat: same, members: same,
	},
	{
		act: "`describe deployment web -n shop`", do: pages("describe", "deployment", "web", "-n", "{shop}"),
		real: "31 lines", fleet: says("`Error from server (AmbiguousName): deployments.apps \"web\" is ambiguous, 3 members have it: …`"), flat: same, members: same,
	},
	{
		act: "`describe boat gull -n shop`", do: pages("describe", "boat", "gull", "-n", "{shop}"),
		real: "13 lines", fleet: says("`Error from server (AmbiguousName): boats.harbour.example \"gull\" is ambiguous, 3 members have it: …`"), flat: same, members: same,
	},
	{
		act: "`describe service web -n shop`", do: pages("describe", "service", "web", "-n", "{shop}"),
		real: "15 lines", fleet: says("`Error from server (AmbiguousName): services \"web\" is ambiguous, 3 members have it: …`"), flat: same, members: same,
	},
	{
		act: "`describe persistentvolume disk-1`", do: pages("describe", "persistentvolume", "{disk-1}"),
		real: "17 lines", fleet: says("`Error from server (AmbiguousName): persistentvolumes \"disk-1\" is ambiguous, 3 members have it: …`"), flat: same, members: same,
	},
	{
		act: "`describe persistentvolumeclaim data -n shop`", do: pages("describe", "persistentvolumeclaim", "data", "-n", "{shop}"),
		real: "12 lines", fleet: says("`Error from server (AmbiguousName): persistentvolumeclaims \"data\" is ambiguous, 3 members have it: …`"), flat: same, members: same,
	},
	{
		act: "`describe namespace shop`", do: pages("describe", "namespace", "{shop}"),
		real: "6 lines", fleet: says("`Error from server (AmbiguousName): namespaces \"shop\" is ambiguous, 3 members have it: …`"), flat: same, members: same,
	},
	{
		act: "`describe secret password -n shop`", do: pages("describe", "secret", "password", "-n", "{shop}"),
		real: "7 lines", fleet: says("`Error from server (AmbiguousName): secrets \"password\" is ambiguous, 3 members have it: …`"), flat: same, members: same,
	},
	{
		act: "`describe configmap settings -n shop`", do: pages("describe", "configmap", "settings", "-n", "{shop}"),
		real: "14 lines", fleet: says("`Error from server (AmbiguousName): configmaps \"settings\" is ambiguous, 3 members have it: …`"), flat: same, members: same,
	},
	{
		act: "`describe clusterrolebinding sees-pods`", do: pages("describe", "clusterrolebinding", "{sees-pods}"),
		real: "9 lines", fleet: says("`Error from server (AmbiguousName): clusterrolebindings.rbac.authorization.k8s.io \"sees-pods\" is ambiguous, 3 members have it: …`"), flat: same, members: same,
	},
	{
		act: "`describe pods -n shop -l app=web`", do: pages("describe", "pods", "-n", "{shop}", "-l", "app=web"),
		real: "66 lines", fleet: says("`Error from server (AmbiguousName): pods \"web-0\" is ambiguous, 3 members have it: … Error from server (AmbiguousName): pods \"web-1\" is ambiguous, 3 members have it: …`"), flat: same, members: same,
	},
	{
		act: "`describe pods -n shop web-`", do: pages("describe", "pods", "-n", "{shop}", "web-"),
		real: "66 lines", fleet: says("`Error from server (AmbiguousName): pods \"web-0\" is ambiguous, 3 members have it: …`"), flat: same, members: same,
	},
	{
		act: "`explain pods`", do: pages("explain", "pods"),
		real: "26 lines", fleet: same, flat: same, members: same,
	},
	{
		act: "`explain pods.spec.nodeName`", do: pages("explain", "pods.spec.nodeName"),
		real: "10 lines", fleet: same, flat: same, members: same,
	},
	{
		act: "`explain boats.spec --recursive`", do: pages("explain", "boats.spec", "--recursive"),
		real: "9 lines", fleet: same, flat: same, members: same,
	},
	{
		act: "`api-resources -o name`", do: offers("api-resources", "-o", "name"),
		real: "68 lines", fleet: says("63 lines without `bindings, componentstatuses, tokenreviews.authentication.k8s.io, localsubjectaccessreviews.authorization.k8s.io, subjectaccessreviews.authorization.k8s.io`"), flat: says("63 lines without `bindings, componentstatuses, tokenreviews.authentication.k8s.io, localsubjectaccessreviews.authorization.k8s.io, subjectaccessreviews.authorization.k8s.io`"), members: says("63 lines without `bindings, componentstatuses, tokenreviews.authentication.k8s.io, localsubjectaccessreviews.authorization.k8s.io, subjectaccessreviews.authorization.k8s.io`"),
		why: "reviews of others, and what cannot be listed",
	},
	{
		act: "`api-resources --verbs=list,get --namespaced -o name`", do: offers("api-resources", "--verbs=list,get", "--namespaced", "-o", "name"),
		real: "32 lines", fleet: same, flat: same, members: same,
	},
	{
		act: "`api-versions`", do: offers("api-versions"),
		real: "23 lines", fleet: same, flat: same, members: same,
	},
	{
		act: "`version`", do: prints("version"),
		real: "`Client Version: v1.36.3 Kustomize Version: v5.8.1 Server Version: v1.36.3`", fleet: same, flat: same, members: same,
	},
	{
		act: "`cluster-info`", do: prints("cluster-info"),
		real: "`Kubernetes control plane is running at https://… To further debug and diagnose cluster problems, use 'kubectl cluster-info dump'.`", fleet: says("`Kubernetes control plane is running at https://…/fleet To further debug and diagnose cluster problems, use 'kubectl cluster-info dump'.`"), flat: says("`Kubernetes control plane is running at https://…/flat To further debug and diagnose cluster problems, use 'kubectl cluster-info dump'.`, `Warning: no namespace is called \"kube-system\" here: names are <cluster namespace>.<cluster name>.<name>, with _ for dots of a cluster's name`"), members: says("`Kubernetes control plane is running at https://…/members/acme/eu-1 To further debug and diagnose cluster problems, use 'kubectl cluster-info dump'.`"),
		why: "there are no Services of the control plane to be found",
	},
	{
		act: "`events -n shop`", do: tables("events", "-n", "{shop}"),
		real: "`4 × LAST SEEN TYPE REASON OBJECT MESSAGE`", fleet: all("`12 × LAST SEEN TYPE REASON OBJECT MESSAGE`"), flat: same, members: same,
	},
	{
		act: "`events -n shop --for pod/web-0`", do: tables("events", "-n", "{shop}", "--for", "pod/web-0"),
		real: "`1 × LAST SEEN TYPE REASON OBJECT MESSAGE`", fleet: says("`3 × LAST SEEN TYPE REASON OBJECT MESSAGE`"), flat: same, members: same,
	},
	{
		act: "`logs web-0 -n shop`", do: described("the log", prints("logs", "web-0", "-n", "{shop}")),
		real: "the log", fleet: says("`Error from server (AmbiguousName): pods \"web-0\" is ambiguous, 3 members have it: …`"), flat: says("`Error from server (MethodNotAllowed): get is not supported on resources of kind \"pods/log\": the query API serves no subresources; send the request to the API server of acme/eu-1, for example with kubectl --context`"), members: says("`Error from server (MethodNotAllowed): get is not supported on resources of kind \"pods/log\": the query API serves no subresources; send the request to the API server of acme/eu-1, for example with kubectl --context`"),
	},
	{
		act: "`exec web-0 -n shop -- ls`", do: described("the output of the command", prints("exec", "web-0", "-n", "{shop}", "--", "ls")),
		real: "the output of the command", fleet: says("`Error from server (AmbiguousName): pods \"web-0\" is ambiguous, 3 members have it: …`"), flat: says("`error: unable to upgrade connection: create is not supported on resources of kind \"pods\": the query API is read-only; send the request to the API server of acme/eu-1, for example with kubectl --context`"), members: says("`error: unable to upgrade connection: create is not supported on resources of kind \"pods\": the query API is read-only; send the request to the API server of acme/eu-1, for example with kubectl --context`"),
	},
	{
		act: "`attach web-0 -n shop`", do: described("the output of the container", prints("attach", "web-0", "-n", "{shop}")),
		real: "the output of the container", fleet: says("`Error from server (AmbiguousName): pods \"web-0\" is ambiguous, 3 members have it: …`"), flat: says("`All commands and output from this session will be recorded in container logs, including credentials and sensitive information passed through the command prompt. If you don't see a command prompt, try pressing enter. error: unable to upgrade connection: create is not supported on resources of kind \"pods\": the query API is read-only; send the request to the API server of acme/eu-1, for example with kubectl --context`"), members: says("`All commands and output from this session will be recorded in container logs, including credentials and sensitive information passed through the command prompt. If you don't see a command prompt, try pressing enter. error: unable to upgrade connection: create is not supported on resources of kind \"pods\": the query API is read-only; send the request to the API server of acme/eu-1, for example with kubectl --context`"),
	},
	{
		act: "`port-forward web-0 8080:80 -n shop`", do: described("a tunnel", prints("port-forward", "web-0", "8080:80", "-n", "{shop}")),
		real: "a tunnel", fleet: says("`Error from server (AmbiguousName): pods \"web-0\" is ambiguous, 3 members have it: …`"), flat: says("`error: error upgrading connection: unable to upgrade connection: create is not supported on resources of kind \"pods\": the query API is read-only; send the request to the API server of acme/eu-1, for example with kubectl --context`"), members: says("`error: error upgrading connection: unable to upgrade connection: create is not supported on resources of kind \"pods\": the query API is read-only; send the request to the API server of acme/eu-1, for example with kubectl --context`"),
	},
	{
		act: "`cp web-0:/etc/hosts hosts -n shop`", do: described("the file", prints("cp", "web-0:/etc/hosts", "hosts", "-n", "{shop}")),
		real: "the file", fleet: says("`Error from server (AmbiguousName): pods \"web-0\" is ambiguous, 3 members have it: …`"), flat: says("`error: unable to upgrade connection: create is not supported on resources of kind \"pods\": the query API is read-only; send the request to the API server of acme/eu-1, for example with kubectl --context`"), members: says("`error: unable to upgrade connection: create is not supported on resources of kind \"pods\": the query API is read-only; send the request to the API server of acme/eu-1, for example with kubectl --context`"),
	},
	{
		act: "`top pods -A`", do: prints("top", "pods", "-A"),
		real: "`error: Metrics API not available`", fleet: same, flat: same, members: same,
	},
	{
		act: "`top nodes`", do: prints("top", "nodes"),
		real: "`error: Metrics API not available`", fleet: same, flat: same, members: same,
	},
	{
		act: "`auth can-i list pods -A`", do: prints("auth", "can-i", "list", "pods", "-A"),
		real: "`yes`", fleet: same, flat: same, members: same,
	},
	{
		act: "`auth can-i get pods/log -n shop`", do: prints("auth", "can-i", "get", "pods/log", "-n", "{shop}"),
		real: "`yes`", fleet: says("`yes`"), flat: says("`yes`"), members: says("`yes`"),
	},
	{
		act: "`auth can-i create pods -n shop`", do: prints("auth", "can-i", "create", "pods", "-n", "{shop}"),
		real: "`yes`", fleet: says("`no - the query API is read-only: verb \"create\" is not supported`"), flat: says("`no - the query API is read-only: verb \"create\" is not supported`"), members: says("`no - the query API is read-only: verb \"create\" is not supported`"),
		why: "nothing is written through federator",
	},
	{
		act: "`auth can-i --list -n shop`", do: lists("auth", "can-i", "--list", "-n", "{shop}"),
		real: "22 lines", fleet: says("12 lines"), flat: says("12 lines"), members: says("12 lines"),
		why: "writing is granted to nobody",
	},
	{
		act: "`auth whoami`", do: prints("auth", "whoami"),
		real: "`ATTRIBUTE VALUE Username ann Groups [system:masters system:authenticated] Extra: authentication.kubernetes.io/credential-id [X509SHA256=…]`", fleet: same, flat: same, members: same,
	},
	{
		act: "`diff --server-side -f settings.yaml -n shop`", do: prints("diff", "--server-side", "--field-manager=kubectl", "-f", "{settings.yaml}", "-n", "{shop}"),
		real: "nothing", fleet: says("`Error from server (AmbiguousName): configmaps \"settings\" is ambiguous, 3 members have it: …`"), flat: says("`Error from server (MethodNotAllowed): patch is not supported on resources of kind \"configmaps\": the query API is read-only; send the request to the API server of acme/eu-1, for example with kubectl --context`"), members: says("`Error from server (MethodNotAllowed): patch is not supported on resources of kind \"configmaps\": the query API is read-only; send the request to the API server of acme/eu-1, for example with kubectl --context`"), why: "kubectl asks for a dry run of the write",
	},
	{
		act: "`wait --for=condition=Ready pod/web-0 -n shop --timeout=20s`", do: prints("wait", "--for=condition=Ready", "pod/web-0", "-n", "{shop}", "--timeout=20s"),
		real: "`pod/web-0 condition met`", fleet: says("`Error from server (AmbiguousName): pods \"web-0\" is ambiguous, 3 members have it: …`"), flat: same, members: same,
	},
	{
		act: "`wait --for=condition=Ready pods -l app=web -n shop --timeout=20s`", do: prints("wait", "--for=condition=Ready", "pods", "-l", "app=web", "-n", "{shop}", "--timeout=20s"),
		real: "`pod/web-0 condition met pod/web-1 condition met`", fleet: says("`pod/web-0 condition met pod/web-1 condition met pod/web-0 condition met pod/web-1 condition met pod/web-0 condition met pod/web-1 condition met`"), flat: same, members: same,
	},
	{
		act: "`wait --for=jsonpath={.status.phase}=Running pod/web-0 -n shop --timeout=20s`", do: prints("wait", "--for=jsonpath={.status.phase}=Running", "pod/web-0", "-n", "{shop}", "--timeout=20s"),
		real: "`pod/web-0 condition met`", fleet: says("`Error from server (AmbiguousName): pods \"web-0\" is ambiguous, 3 members have it: …`"), flat: same, members: same,
	},
	{
		act: "`wait --for=delete pod/nope -n shop --timeout=20s`", do: prints("wait", "--for=delete", "pod/nope", "-n", "{shop}", "--timeout=20s"),
		real: "nothing", fleet: same, flat: same, members: same,
	},
	{
		act: "`rollout status deployment/web -n shop --timeout=20s`", do: prints("rollout", "status", "deployment/web", "-n", "{shop}", "--timeout=20s"),
		real: "`deployment \"web\" successfully rolled out`", fleet: says("`Error from server (AmbiguousName): deployments.apps \"web\" is ambiguous, 3 members have it: …`"), flat: same, members: same,
	},
	{
		act: "`rollout history deployment/web -n shop`", do: prints("rollout", "history", "deployment/web", "-n", "{shop}"),
		real: "`deployment.apps/web REVISION CHANGE-CAUSE 1 <none>`", fleet: says("`Error from server (AmbiguousName): deployments.apps \"web\" is ambiguous, 3 members have it: …`"), flat: same, members: same,
	},
	{
		act: "`label pod web-0 -n shop --list`", do: lists("label", "pod", "web-0", "-n", "{shop}", "--list"),
		real: "2 lines", fleet: says("`Error from server (AmbiguousName): pods \"web-0\" is ambiguous, 3 members have it: …`"), flat: same, members: same,
	},
	{
		act: "`set env deployment/web -n shop --list`", do: lists("set", "env", "deployment/web", "-n", "{shop}", "--list"),
		real: "a line", fleet: says("`Error from server (AmbiguousName): deployments.apps \"web\" is ambiguous, 3 members have it: …`"), flat: same, members: same,
	},
	{
		act: "`__complete get pods -n shop web-`", do: lists("__complete", "get", "pods", "-n", "{shop}", "web-"),
		real: "3 lines, `Completion ended with directive: ShellCompDirectiveNoFileComp`", fleet: says("7 lines, `Completion ended with directive: ShellCompDirectiveNoFileComp`"), flat: same, members: same,
	},
	{
		act: "`__complete get po`", do: lists("__complete", "get", "po"),
		real: "4 lines, `Completion ended with directive: ShellCompDirectiveNoFileComp`", fleet: says("4 lines, `Completion ended with directive: ShellCompDirectiveNoFileComp`"), flat: same, members: same,
	},
	{
		act: "`config view --minify -o jsonpath={.contexts[0].name}`", do: prints("config", "view", "--minify", "-o", "jsonpath={.contexts[0].name}"),
		real: "`it`", fleet: same, flat: same, members: same,
	},
}
