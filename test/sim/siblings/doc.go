// Package siblings multiplies real objects into as many as a test wants.
//
// A [Corpus] holds templates: objects as API servers returned them, read from a
// directory of JSON lines (core_Pod.jsonl, apps_Deployment.jsonl, …), or a small
// sample that comes with the package. [Corpus.Pods], [Corpus.Nodes] and
// [Corpus.Objects] make siblings of them: names, uids, resourceVersions, times and
// owners' uids differ, and of pods also template hashes, IPs, nodes and container
// IDs, while pods of one ReplicaSet share owner, labels and hash. managedFields are
// the template's; where it has none they are made, of two managers, from what the
// object holds.
//
// Everything follows from the seed and the ordinal: sets are not stored, equal
// arguments give equal objects, and all methods may be called from any goroutine.
// The sets are sources for package sim.
package siblings
