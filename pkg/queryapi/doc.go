// Package queryapi is the cross-cluster query API: a Kubernetes API over the
// snapshots of an index, for kubectl and client-go.
//
//	/fleet/…                        all members
//	/flat/…                         all members, under keys that no two of them share
//	/members/<namespace>/<name>/…   one of them
//	/query/v1/<name>[/<value>]      queries that the Kubernetes API does not have
//	/openapi/v3                     their OpenAPI document
//	/mcp                            tools of the Model Context Protocol, with Options.MCP
//
// Below the first three it behaves as an API server: version, discovery and OpenAPI, get,
// list and watch, in JSON, YAML or protobuf, as Table or as metadata only. Everything
// comes from memory, and no request reaches a member. Writes get 405; errors are Status
// objects.
//
// # Authentication and authorization
//
// Callers authenticate with a token that the hub reviews (audience "federator") or
// with a client certificate; there are no anonymous users, and impersonation is refused.
// The hub decides what they may read by SubjectAccessReviews in API group members.federator.dev, with the
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
// Clusters; resourceNames narrow it to Clusters. Decisions are cached for at most
// 30 s, open watches renew them, and when the hub does not answer nothing is granted.
// Every authenticated caller may read discovery of the fleet; that of a member only
// callers who may read anything in it. A forbidden member and one that does not exist
// get the same response.
//
// Federator's own identity on the hub needs the ClusterRole
// system:auth-delegator, and list and watch of flowschemas and
// prioritylevelconfigurations for Fairness.Priority. It never writes there.
//
// # The chain
//
// A request passes filters of k8s.io/apiserver, in its order: audit ID, request
// info, deadline, authentication, audit, priority and fairness. Our own are
// added where these do not suffice: paths are parsed strictly, panics and limits give a
// Status, a client that does not read is disconnected, and every goroutine is joined.
//
// # Shared fleets
//
// With Options.Peers several processes share a fleet, and any of them answers for all of it. A
// request about one member is forwarded to the process that judges it (aggregate.Judge); what is about
// the whole fleet is merged of the parts of all processes, each of which decides by the hub what
// the caller may read of its members. PeersHandler serves the others, which say who asks in request
// headers; it never asks on, and audits nothing: that is done where the client asked.
//
// Members whose process does not answer are said to be not fresh, as Unknown; a process that is lost
// in the middle of a response aborts it, and ends a watch with 410. resourceVersions and continue
// tokens of /fleet and /flat are of the process that was asked, which mints them (Options.Minted) and
// remembers what the newest 65,536 stand for; those of one member are of its process. Others are 410.
//
// Count, find, related, members, stream and discovery are of the whole fleet. A Query of Options.Queries
// answers for it if it is a Sharer, is watched if it is a WatchSharer, and takes what is posted if it is a SharedPoster; what
// others need of other processes they pull as a PartServer, item by item. All else gets 501. A Table whose columns differ among
// the processes has only names and ages.
//
// # Concurrency
//
// A Server's methods may be called from any goroutine. Run returns when all that
// it started has ended, except a TokenReview that its last caller has abandoned, which
// ends by itself within 15 s.
//
// # Trade-offs
//
// A self-signed certificate is valid for a year and not renewed before the next
// start. An invalid file is logged, and the previous content stays in use. Priority and
// fairness counts each request as one seat, whatever the size of its response, which is
// not known in advance.
package queryapi
