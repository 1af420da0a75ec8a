// Package enforcement tells stories of the main job: a commit in git becomes policies,
// FleetPolicies of the hub say what may come of them, and members are corrected, or are
// not, and the hub says why. The stories are testdata/*.txtar, in the language of
// testscript, and every part of them is real: the federator command in processes of its
// own, a hub and members that are real API servers, git, and kubectl.
//
// # What a story has
//
// A hub with federator's CRDs, namespace fleet for Clusters, and namespace federator for
// the lease, the stop, and Secrets that PolicySources may name. Members with namespace
// shop, one for each name that the story mentions. A repository, empty at first. The files of
// testdata/files, where the story has none of the same name:
//
//   - policies/: package acme.tier, which wants label tier=gold on ConfigMaps that have
//     label managed, and a test of it;
//   - source.yaml: PolicySource git, which reads the repository and may enforce that;
//   - tier.yaml: FleetPolicy tier, which does.
//
// Commands are listed in commands_test.go and commands_actions_test.go. In files for apply,
// and in arguments, $REPO is the repository's URL and $COMMIT the last commit.
//
// # Concurrency
//
// Stories run in lanes, one after another, each lane with a hub and members of its own that
// are shared by its stories and given back clean: what is on a hub without a namespace, such as a FleetPolicy,
// is everybody's there. Nothing is timed: a story waits for what it expects, and where it
// expects that nothing happens, for something that comes later.
package enforcement
