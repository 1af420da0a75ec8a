// Package enforcement tests the main job end to end: a commit in git becomes policies,
// FleetPolicies of the hub say how they are enforced, and members are corrected, or the hub
// says why not. Its stories are testdata/*.txtar, in the language of testscript. Everything
// in them is real: the federator command in processes of its own, a hub and members that
// are API servers, git, and kubectl.
//
// # What a story has
//
// A hub with federator's CRDs, namespace fleet for Clusters, and namespace federator for
// the lease, the stop, and Secrets that PolicySources may name. Members with namespace
// shop, one for each name that the story mentions. A repository, empty at first. The files of
// testdata/files, where the story has none of the same name:
//
//   - policies/: package acme.tier, which requires label tier=gold on ConfigMaps that have
//     label managed, and a test of it;
//   - source.yaml: PolicySource git, which reads the repository and allows that;
//   - tier.yaml: FleetPolicy tier, which enforces it;
//   - corrections.yaml: policies.corrections of federator's configuration, on one line; lines that
//     follow are other fields of policies.
//
// A webhook is told of what happens. An event with a wrong signature, or with the key of another
// one, fails the story.
//
// Commands are listed in commands_test.go, commands_actions_test.go, commands_people_test.go,
// commands_plans_test.go and commands_traces_test.go. In files for apply, and in arguments, $REPO is the repository's URL and $COMMIT the last commit.
//
// # Concurrency
//
// Each testbed, a hub and members, runs one story at a time and is cleaned up between
// stories: cluster-scoped objects of a hub, such as FleetPolicies, would meet otherwise.
// Nothing is timed: a story waits for what it expects, and where it expects that nothing
// happens, for something that comes later.
package enforcement
