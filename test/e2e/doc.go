// Package e2e shows what federator promises on real control planes: as stories
// that read like documentation (testdata/*.txtar), as a measurement of how far
// members are isolated from each other, and as a soak.
//
// Each story has a namespace of the hub and an index of its own, wired as the
// federator command does, and borrows control planes from a pool that all
// stories share: booting one takes seconds. What a story leaves in a control
// plane stays there, so names of cluster-scoped objects are unique to stories.
// Stories run in parallel, two on two cores.
//
// The commands of the stories are described where they are defined, in
// commands_test.go and eventually_test.go. One story alone:
//
//	go test ./test/e2e -run Stories/cut -v
//
// TestIsolation prints its figures with -v; timings never fail it. TestSoak
// lasts as long as the environment's SOAK says, 20 s without; SEED repeats the
// order of what a former run did, though not its timing. With E2E_LOGS set, a
// failure shows the ends of the control planes' logs.
package e2e
