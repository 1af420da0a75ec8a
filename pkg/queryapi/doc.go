// Package queryapi is the cross-cluster query API: a Kubernetes API over the
// snapshots of an index, for kubectl and client-go.
//
//	/fleet/…                        all members
//	/flat/…                         all members, under keys that no two of them share
//	/members/<namespace>/<name>/…   one of them
//	/query/v1/<name>                questions that Kubernetes has no words for
//	/openapi/v3                     what may be asked, and how it is answered
//
// Below the first three it answers as an API server does: version, discovery and
// OpenAPI, get, list and watch, in JSON, YAML, as Table or as metadata alone.
// Everything comes from memory and no request reaches a member. What is not
// read gets 405, errors are Status objects.
//
// # Who may read what
//
// Callers prove who they are by a token that the hub reviews (audience
// "federator") or by a client certificate; nobody is anonymous, and nobody
// speaks for another: impersonation is refused. The hub decides what they may
// read by SubjectAccessReviews in API group members.federator.dev, with the
// resource written <plural>[.<group>] and the verbs get, list and watch, for all
// members, for those of a namespace, or for one by name:
//
//	kind: ClusterRole
//	rules:
//	- apiGroups: [members.federator.dev]
//	  resources: [pods, deployments.apps]
//	  verbs: [get, list, watch]
//
// bound by a ClusterRoleBinding, or by a RoleBinding in the namespace of
// Clusters; resourceNames narrow it to Clusters. Answers are kept at most 30 s,
// open watches ask again, and when the hub does not answer nothing is granted.
// Every authenticated caller may read discovery of the fleet; that of a member,
// whoever may read anything in it. A forbidden member and one that does not
// exist read the same.
//
// Federator's own identity on the hub needs the ClusterRole
// system:auth-delegator, and list and watch of flowschemas and
// prioritylevelconfigurations for Fairness.Priority. It never writes there.
//
// # The chain
//
// A request passes filters of k8s.io/apiserver, in its order: audit ID, request
// info, deadline, authentication, audit, priority and fairness. Our own stand
// where the machinery falls short of the above: paths are read strictly, panics
// and limits answer with a Status, a client that does not read is let go, and
// every goroutine is waited for.
//
// # Concurrency
//
// A Server's methods may be called from any goroutine. Run returns when all that
// it started is gone, except a review of a token that its last caller has left,
// which ends by itself within 15 s.
//
// # Trade-offs
//
// A certificate that the server made for itself is good for a year and not
// made again before the next start. A file that cannot be used is logged, and
// what was good before stays in use. The hub's priorities count each answer as
// one seat, whatever its size: what it costs follows from what is found.
package queryapi
