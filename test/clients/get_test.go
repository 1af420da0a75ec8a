package clients

var getRows = []row{
	{
		act: "`get pods -A`", do: tables("get", "pods", "-A"),
		real: "`4 × NAMESPACE NAME READY STATUS RESTARTS AGE`", fleet: all("`12 × NAMESPACE CLUSTER NAME READY STATUS RESTARTS AGE`"), flat: all("`12 × NAMESPACE NAME READY STATUS RESTARTS AGE`"), members: same,
	},
	{
		act: "`get pods -n shop`", do: tables("get", "pods", "-n", "{shop}"),
		real: "`4 × NAME READY STATUS RESTARTS AGE`", fleet: all("`12 × CLUSTER NAME READY STATUS RESTARTS AGE`"), flat: same, members: same,
	},
	{
		act: "`get pods -A -o wide`", do: tables("get", "pods", "-A", "-o", "wide"),
		real: "`4 × NAMESPACE NAME READY STATUS RESTARTS AGE IP NODE NOMINATED NODE READINESS GATES`", fleet: all("`12 × NAMESPACE CLUSTER NAME READY STATUS RESTARTS AGE IP NODE NOMINATED NODE READINESS GATES`"), flat: all("`12 × NAMESPACE NAME READY STATUS RESTARTS AGE IP NODE NOMINATED NODE READINESS GATES`"), members: same,
	},
	{
		act: "`get deployments -A -o wide`", do: tables("get", "deployments", "-A", "-o", "wide"),
		real: "`2 × NAMESPACE NAME READY UP-TO-DATE AVAILABLE AGE CONTAINERS IMAGES SELECTOR`", fleet: all("`6 × NAMESPACE CLUSTER NAME READY UP-TO-DATE AVAILABLE AGE CONTAINERS IMAGES SELECTOR`"), flat: all("`6 × NAMESPACE NAME READY UP-TO-DATE AVAILABLE AGE CONTAINERS IMAGES SELECTOR`"), members: same,
	},
	{
		act: "`get nodes`", do: tables("get", "nodes"),
		real: "`1 × NAME STATUS ROLES AGE VERSION`", fleet: all("`3 × CLUSTER NAME STATUS ROLES AGE VERSION`"), flat: all("`3 × NAME STATUS ROLES AGE VERSION`"), members: same,
	},
	{
		act: "`get nodes -o wide`", do: tables("get", "nodes", "-o", "wide"),
		real: "`1 × NAME STATUS ROLES AGE VERSION INTERNAL-IP EXTERNAL-IP OS-IMAGE KERNEL-VERSION CONTAINER-RUNTIME`", fleet: all("`3 × CLUSTER NAME STATUS ROLES AGE VERSION INTERNAL-IP EXTERNAL-IP OS-IMAGE KERNEL-VERSION CONTAINER-RUNTIME`"), flat: all("`3 × NAME STATUS ROLES AGE VERSION INTERNAL-IP EXTERNAL-IP OS-IMAGE KERNEL-VERSION CONTAINER-RUNTIME`"), members: same,
	},
	{
		act: "`get pod web-0 -n shop`", do: tables("get", "pod", "web-0", "-n", "{shop}"),
		real: "`1 × NAME READY STATUS RESTARTS AGE`", fleet: all("`3 × CLUSTER NAME READY STATUS RESTARTS AGE`"), flat: same, members: same,
	},
	{
		act: "`get pod web-0 -n shop -o yaml`", do: objects("get", "pod", "web-0", "-n", "{shop}", "-o", "yaml"),
		real: "one Pod", fleet: says("`Error from server (AmbiguousName): pods \"web-0\" is ambiguous, 3 members have it: …`"), flat: same, members: same,
	},
	{
		act: "`get pod web-0 -n shop -o json`", do: objects("get", "pod", "web-0", "-n", "{shop}", "-o", "json"),
		real: "one Pod", fleet: says("`Error from server (AmbiguousName): pods \"web-0\" is ambiguous, 3 members have it: …`"), flat: same, members: same,
	},
	{
		act: "`get pod web-0 -n shop -o name`", do: lists("get", "pod", "web-0", "-n", "{shop}", "-o", "name"),
		real: "a line", fleet: says("`Error from server (AmbiguousName): pods \"web-0\" is ambiguous, 3 members have it: …`"), flat: same, members: same,
	},
	{
		act: "`get pod web-0 -n shop -o jsonpath={.spec.nodeName}`", do: lists("get", "pod", "web-0", "-n", "{shop}", "-o", "jsonpath={.spec.nodeName}"),
		real: "a line", fleet: says("`Error from server (AmbiguousName): pods \"web-0\" is ambiguous, 3 members have it: …`"), flat: same, members: same,
	},
	{
		act: "`get pods -n shop -o yaml --field-selector metadata.name=web-0`", do: objects("get", "pods", "-n", "{shop}", "-o", "yaml", "--field-selector", "metadata.name=web-0"),
		real: "List of 1", fleet: all("List of 3"), flat: same, members: same,
	},
	{
		act: "`get pods -A -o json`", do: objects("get", "pods", "-A", "-o", "json"),
		real: "List of 4", fleet: all("List of 12"), flat: all("List of 12"), members: same,
	},
	{
		act: "`get deployments -A -o yaml`", do: objects("get", "deployments", "-A", "-o", "yaml"),
		real: "List of 2", fleet: all("List of 6"), flat: all("List of 6"), members: same,
	},
	{
		act: "`get pods -A -o name`", do: lists("get", "pods", "-A", "-o", "name"),
		real: "4 lines", fleet: all("12 lines"), flat: all("12 lines"), members: same,
	},
	{
		act: "`get pods -A -o jsonpath=…`", do: lists("get", "pods", "-A", "-o", `jsonpath={range .items[*]}{.metadata.namespace}/{.metadata.name}:{.spec.containers[0].image}{"\n"}{end}`),
		real: "4 lines", fleet: all("12 lines"), flat: all("12 lines"), members: same,
	},
	{
		act: "`get pods -A --no-headers -o custom-columns=NS:.metadata.namespace,NAME:.metadata.name,IMAGE:.spec.containers[*].image`", do: lists("get", "pods", "-A", "--no-headers", "-o", "custom-columns=NS:.metadata.namespace,NAME:.metadata.name,IMAGE:.spec.containers[*].image"),
		real: "4 lines", fleet: all("12 lines"), flat: all("12 lines"), members: same,
	},
	{
		act: "`get pods -A -o go-template=…`", do: lists("get", "pods", "-A", "-o", `go-template={{range .items}}{{.metadata.namespace}}/{{.metadata.name}}{{"\n"}}{{end}}`),
		real: "4 lines", fleet: all("12 lines"), flat: all("12 lines"), members: same,
	},
	{
		act: "`get pods -A -l app=web`", do: tables("get", "pods", "-A", "-l", "app=web"),
		real: "`2 × NAMESPACE NAME READY STATUS RESTARTS AGE`", fleet: all("`6 × NAMESPACE CLUSTER NAME READY STATUS RESTARTS AGE`"), flat: all("`6 × NAMESPACE NAME READY STATUS RESTARTS AGE`"), members: same,
	},
	{
		act: "`get pods -A -l \"app in (web,db),app!=db\"`", do: tables("get", "pods", "-A", "-l", "app in (web,db),app!=db"),
		real: "`2 × NAMESPACE NAME READY STATUS RESTARTS AGE`", fleet: all("`6 × NAMESPACE CLUSTER NAME READY STATUS RESTARTS AGE`"), flat: all("`6 × NAMESPACE NAME READY STATUS RESTARTS AGE`"), members: same,
	},
	{
		act: "`get pods -A --field-selector spec.nodeName=node-1`", do: tables("get", "pods", "-A", "--field-selector", "spec.nodeName={node-1}"),
		real: "`4 × NAMESPACE NAME READY STATUS RESTARTS AGE`", fleet: all("`12 × NAMESPACE CLUSTER NAME READY STATUS RESTARTS AGE`"), flat: same, members: same,
	},
	{
		act: "`get pods -A --field-selector metadata.name=web-0,status.phase=Running`", do: tables("get", "pods", "-A", "--field-selector", "metadata.name=web-0,status.phase=Running"),
		real: "`1 × NAMESPACE NAME READY STATUS RESTARTS AGE`", fleet: all("`3 × NAMESPACE CLUSTER NAME READY STATUS RESTARTS AGE`"), flat: all("`3 × NAMESPACE NAME READY STATUS RESTARTS AGE`"), members: same,
	},
	{
		act: "`get pods -A --field-selector status.phase!=Running`", do: tables("get", "pods", "-A", "--field-selector", "status.phase!=Running"),
		real: "`No resources found`", fleet: all("`No resources found`"), flat: all("`No resources found`"), members: same,
	},
	{
		act: "`get pods -A --field-selector spec.nothing=1`", do: tables("get", "pods", "-A", "--field-selector", "spec.nothing=1"),
		real: "`Error from server (BadRequest): Unable to find \"/v1, Resource=pods\" that match label selector \"\", field selector \"spec.nothing=1\": field label not supported: spec.nothing`", fleet: says("`No resources found`"), flat: says("`No resources found`"), members: says("`No resources found`"),
		why: "any field may be asked for; none has this one",
	},
	{
		act: "`get pods -A --chunk-size=2`", do: tables("get", "pods", "-A", "--chunk-size=2"),
		real: "`4 × NAMESPACE NAME READY STATUS RESTARTS AGE`", fleet: all("`12 × NAMESPACE CLUSTER NAME READY STATUS RESTARTS AGE`"), flat: all("`12 × NAMESPACE NAME READY STATUS RESTARTS AGE`"), members: same,
	},
	{
		act: "`get pods -A --sort-by=.metadata.name`", do: tables("get", "pods", "-A", "--sort-by=.metadata.name"),
		real: "`4 × NAMESPACE NAME READY STATUS RESTARTS AGE`", fleet: all("`12 × NAMESPACE CLUSTER NAME READY STATUS RESTARTS AGE`"), flat: all("`12 × NAMESPACE NAME READY STATUS RESTARTS AGE`"), members: same,
	},
	{
		act: "`get pods -A -L site`", do: tables("get", "pods", "-A", "-L", "site"),
		real: "`4 × NAMESPACE NAME READY STATUS RESTARTS AGE SITE`", fleet: all("`12 × NAMESPACE CLUSTER NAME READY STATUS RESTARTS AGE SITE`"), flat: all("`12 × NAMESPACE NAME READY STATUS RESTARTS AGE SITE`"), members: same,
	},
	{
		act: "`get pods -A --show-labels`", do: tables("get", "pods", "-A", "--show-labels"),
		real: "`4 × NAMESPACE NAME READY STATUS RESTARTS AGE LABELS`", fleet: all("`12 × NAMESPACE CLUSTER NAME READY STATUS RESTARTS AGE LABELS`"), flat: all("`12 × NAMESPACE NAME READY STATUS RESTARTS AGE LABELS`"), members: same,
	},
	{
		act: "`get pods -n shop --show-kind`", do: tables("get", "pods", "-n", "{shop}", "--show-kind"),
		real: "`4 × NAME READY STATUS RESTARTS AGE`", fleet: all("`12 × CLUSTER NAME READY STATUS RESTARTS AGE`"), flat: same, members: same,
	},
	{
		act: "`get pods -A --server-print=false`", do: tables("get", "pods", "-A", "--server-print=false"),
		real: "`4 × NAMESPACE NAME AGE`", fleet: says("`12 × NAMESPACE NAME AGE`"), flat: all("`12 × NAMESPACE NAME AGE`"), members: same,
	},
	{
		act: "`get deployments,replicasets,services -n shop`", do: tables("get", "deployments,replicasets,services", "-n", "{shop}"),
		real: "`2 × NAME READY UP-TO-DATE AVAILABLE AGE; 2 × NAME DESIRED CURRENT READY AGE; 1 × NAME TYPE CLUSTER-IP EXTERNAL-IP PORT(S) AGE`", fleet: all("`6 × CLUSTER NAME READY UP-TO-DATE AVAILABLE AGE; 6 × CLUSTER NAME DESIRED CURRENT READY AGE; 3 × CLUSTER NAME TYPE CLUSTER-IP EXTERNAL-IP PORT(S) AGE`"), flat: same, members: same,
	},
	{
		act: "`get all -n shop`", do: tables("get", "all", "-n", "{shop}"),
		real: "`4 × NAME READY STATUS RESTARTS AGE; 1 × NAME TYPE CLUSTER-IP EXTERNAL-IP PORT(S) AGE; 2 × NAME READY UP-TO-DATE AVAILABLE AGE; 2 × NAME DESIRED CURRENT READY AGE; 1 × NAME LENGTH`", fleet: all("`12 × CLUSTER NAME READY STATUS RESTARTS AGE; 3 × CLUSTER NAME TYPE CLUSTER-IP EXTERNAL-IP PORT(S) AGE; 6 × CLUSTER NAME READY UP-TO-DATE AVAILABLE AGE; 6 × CLUSTER NAME DESIRED CURRENT READY AGE; 3 × CLUSTER NAME LENGTH`"), flat: same, members: same,
	},
	{
		act: "`get pod/web-0 service/web -n shop`", do: tables("get", "pod/web-0", "service/web", "-n", "{shop}"),
		real: "`1 × NAME READY STATUS RESTARTS AGE; 1 × NAME TYPE CLUSTER-IP EXTERNAL-IP PORT(S) AGE`", fleet: all("`3 × CLUSTER NAME READY STATUS RESTARTS AGE; 3 × CLUSTER NAME TYPE CLUSTER-IP EXTERNAL-IP PORT(S) AGE`"), flat: same, members: same,
	},
	{
		act: "`get boats -A`", do: tables("get", "boats", "-A"),
		real: "`1 × NAMESPACE NAME LENGTH`", fleet: all("`3 × NAMESPACE CLUSTER NAME LENGTH`"), flat: all("`3 × NAMESPACE NAME LENGTH`"), members: same,
	},
	{
		act: "`get bt -n shop`", do: tables("get", "bt", "-n", "{shop}"),
		real: "`1 × NAME LENGTH`", fleet: all("`3 × CLUSTER NAME LENGTH`"), flat: same, members: same,
	},
	{
		act: "`get boats -A -o yaml`", do: objects("get", "boats", "-A", "-o", "yaml"),
		real: "List of 1", fleet: all("List of 3"), flat: all("List of 3"), members: same,
	},
	{
		act: "`get events -n shop`", do: tables("get", "events", "-n", "{shop}"),
		real: "`4 × LAST SEEN TYPE REASON OBJECT MESSAGE`", fleet: all("`12 × CLUSTER LAST SEEN TYPE REASON OBJECT MESSAGE`"), flat: same, members: same,
	},
	{
		act: "`get persistentvolumes`", do: tables("get", "persistentvolumes"),
		real: "`1 × NAME CAPACITY ACCESS MODES RECLAIM POLICY STATUS CLAIM STORAGECLASS VOLUMEATTRIBUTESCLASS REASON AGE`", fleet: all("`3 × CLUSTER NAME CAPACITY ACCESS MODES RECLAIM POLICY STATUS CLAIM STORAGECLASS VOLUMEATTRIBUTESCLASS REASON AGE`"), flat: all("`3 × NAME CAPACITY ACCESS MODES RECLAIM POLICY STATUS CLAIM STORAGECLASS VOLUMEATTRIBUTESCLASS REASON AGE`"), members: same,
	},
	{
		act: "`get persistentvolumeclaims -A`", do: tables("get", "persistentvolumeclaims", "-A"),
		real: "`1 × NAMESPACE NAME STATUS VOLUME CAPACITY ACCESS MODES STORAGECLASS VOLUMEATTRIBUTESCLASS AGE`", fleet: all("`3 × NAMESPACE CLUSTER NAME STATUS VOLUME CAPACITY ACCESS MODES STORAGECLASS VOLUMEATTRIBUTESCLASS AGE`"), flat: all("`3 × NAMESPACE NAME STATUS VOLUME CAPACITY ACCESS MODES STORAGECLASS VOLUMEATTRIBUTESCLASS AGE`"), members: same,
	},
	{
		act: "`get storageclasses`", do: tables("get", "storageclasses"),
		real: "`1 × NAME PROVISIONER RECLAIMPOLICY VOLUMEBINDINGMODE ALLOWVOLUMEEXPANSION AGE`", fleet: all("`3 × CLUSTER NAME PROVISIONER RECLAIMPOLICY VOLUMEBINDINGMODE ALLOWVOLUMEEXPANSION AGE`"), flat: all("`3 × NAME PROVISIONER RECLAIMPOLICY VOLUMEBINDINGMODE ALLOWVOLUMEEXPANSION AGE`"), members: same,
	},
	{
		act: "`get clusterrolebinding sees-pods -o wide`", do: tables("get", "clusterrolebinding", "{sees-pods}", "-o", "wide"),
		real: "`1 × NAME ROLE AGE USERS GROUPS SERVICEACCOUNTS`", fleet: all("`3 × CLUSTER NAME ROLE AGE USERS GROUPS SERVICEACCOUNTS`"), flat: same, members: same,
	},
	{
		act: "`get rolebindings -n shop -o wide`", do: tables("get", "rolebindings", "-n", "{shop}", "-o", "wide"),
		real: "`1 × NAME ROLE AGE USERS GROUPS SERVICEACCOUNTS`", fleet: all("`3 × CLUSTER NAME ROLE AGE USERS GROUPS SERVICEACCOUNTS`"), flat: same, members: same,
	},
	{
		act: "`get namespaces`", do: tables("get", "namespaces"),
		real: "`6 × NAME STATUS AGE`", fleet: all("`18 × CLUSTER NAME STATUS AGE`"), flat: all("`18 × NAME STATUS AGE`"), members: same,
	},
	{
		act: "`get namespace shop`", do: tables("get", "namespace", "{shop}"),
		real: "`1 × NAME STATUS AGE`", fleet: all("`3 × CLUSTER NAME STATUS AGE`"), flat: same, members: same,
	},
	{
		act: "`get namespace shop -o yaml`", do: objects("get", "namespace", "{shop}", "-o", "yaml"),
		real: "one Namespace", fleet: says("`Error from server (AmbiguousName): namespaces \"shop\" is ambiguous, 3 members have it: …`"), flat: same, members: same,
	},
	{
		act: "`get secret password -n shop -o yaml`", do: objects("get", "secret", "password", "-n", "{shop}", "-o", "yaml"),
		real: "one Secret", fleet: says("`Error from server (AmbiguousName): secrets \"password\" is ambiguous, 3 members have it: …`"), flat: same, members: same,
	},
	{
		act: "`get secrets -n shop -o yaml`", do: objects("get", "secrets", "-n", "{shop}", "-o", "yaml"),
		real: "List of 2", fleet: all("List of 6"), flat: same, members: same,
	},
	{
		act: "`get pod nope -n shop`", do: tables("get", "pod", "nope", "-n", "{shop}"),
		real: "`Error from server (NotFound): pods \"nope\" not found`", fleet: says("`Error from server (NotFound): pods \"nope\" not found`"), flat: says("`Error from server (NotFound): pods \"nope\" not found`"), members: says("`Error from server (NotFound): pods \"nope\" not found`"),
	},
	{
		act: "`get pod nope -n shop --ignore-not-found`", do: tables("get", "pod", "nope", "-n", "{shop}", "--ignore-not-found"),
		real: "nothing", fleet: same, flat: same, members: same,
	},
	{
		act: "`get pods -n nowhere`", do: tables("get", "pods", "-n", "nowhere"),
		real: "`No resources found in nowhere namespace.`", fleet: same, flat: says("`Warning: no namespace is called \"nowhere\" here: names are <cluster namespace>.<cluster name>.<name>, with _ for dots of a cluster's name No resources found in nowhere namespace.`"), members: same,
	},
	{
		act: "`get nothing`", do: tables("get", "nothing"),
		real: "`error: the server doesn't have a resource type \"nothing\"`", fleet: same, flat: same, members: same,
	},
	{
		act: "`get --raw /livez`", do: prints("get", "--raw", "/livez"),
		real: "`ok`", fleet: same, flat: same, members: same,
	},
	{
		act: "`get --raw /readyz`", do: prints("get", "--raw", "/readyz"),
		real: "`ok`", fleet: same, flat: same, members: same,
	},
	{
		act: "`get deployment web -n shop --subresource=status -o yaml`", do: objects("get", "deployment", "web", "-n", "{shop}", "--subresource=status", "-o", "yaml"),
		real: "one Deployment", fleet: says("`Error from server (MethodNotAllowed): get is not supported on resources of kind \"deployments/status.apps\": the query API serves no subresources; send the request to the API server of the member, for example with kubectl --context`"), flat: says("`Error from server (MethodNotAllowed): get is not supported on resources of kind \"deployments/status.apps\": the query API serves no subresources; send the request to the API server of acme/eu-1, for example with kubectl --context`"), members: says("`Error from server (MethodNotAllowed): get is not supported on resources of kind \"deployments/status.apps\": the query API serves no subresources; send the request to the API server of acme/eu-1, for example with kubectl --context`"),
	},
	{
		act: "`get deployment web -n shop --subresource=scale -o yaml`", do: objects("get", "deployment", "web", "-n", "{shop}", "--subresource=scale", "-o", "yaml"),
		real: "one Scale", fleet: says("`Error from server (MethodNotAllowed): get is not supported on resources of kind \"deployments/scale.apps\": the query API serves no subresources; send the request to the API server of the member, for example with kubectl --context`"), flat: says("`Error from server (MethodNotAllowed): get is not supported on resources of kind \"deployments/scale.apps\": the query API serves no subresources; send the request to the API server of acme/eu-1, for example with kubectl --context`"), members: says("`Error from server (MethodNotAllowed): get is not supported on resources of kind \"deployments/scale.apps\": the query API serves no subresources; send the request to the API server of acme/eu-1, for example with kubectl --context`"),
	},
	{
		act: "`get -f settings.yaml -n shop`", do: tables("get", "-f", "{settings.yaml}", "-n", "{shop}"),
		real: "`1 × NAME DATA AGE`", fleet: all("`3 × CLUSTER NAME DATA AGE`"), flat: same, members: same,
	},
	{
		act: "`get configmaps -n depot -w`", do: follows("get", "configmaps", "-n", "{depot}", "-w"),
		real: "`NAME DATA AGE` and what is created", fleet: says("`CLUSTER NAME DATA AGE` and what is created"), flat: same, members: same,
	},
	{
		act: "`get configmaps -n depot --watch-only --output-watch-events`", do: follows("get", "configmaps", "-n", "{depot}", "--watch-only", "--output-watch-events"),
		real: "`EVENT NAME DATA AGE` and ADDED what is created", fleet: says("`EVENT CLUSTER NAME DATA AGE` and ADDED what is created"), flat: same, members: same,
	},
	{
		act: "`get configmaps -A -w -o name`", do: follows("get", "configmaps", "-A", "--watch-only", "-o", "name"),
		real: "`configmap/created-…` and what is created", fleet: same, flat: same, members: same,
	},
}
