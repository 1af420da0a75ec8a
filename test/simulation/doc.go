// Package simulation runs what corrects a fleet against a simulated world, in virtual
// time, and checks after every step that corrections stay within their bounds.
//
// # A schedule
//
// A seed draws a world: members with objects, policies with limits, waves and windows, and
// the order of everything that happens in it. Processes are the real components. Each of
// their requests, to the hub or to a member, waits at the transport until the world answers
// it, and the world does one thing at a time: it answers a request, loses the answer,
// delivers an event of a watch, changes an object, lets a person act, ends or pauses a
// process, or lets time pass. In between it waits until every goroutine of the schedule
// waits ([testing/synctest]). So the order of all that matters is the world's choice.
//
// # Whole processes
//
// Schedules of a second kind (whole*.go) run all of package enforcement: what people want is
// on the hub, as FleetPolicies, annotations and ConfigMaps, policies come from git in memory,
// and processes know of them what the world has delivered of their watches. Git's requests
// wait at the transport like all others. Only the members' informers are left out: the world
// fills the index. They draw no waves, Approvals or rollbacks. Their seeds reproduce a history
// most times only: tickers of components fire at one instant, in an order of the runtime's.
//
// # Versions
//
// Schedules of a third kind (versions.go) are those of the first, in which versions of policies take
// the place of former ones, too, wave by wave, and are promoted, replaced or taken back.
//
// # Choices
//
// All choices are numbers, and are recorded: the same numbers replay the schedule, and fewer
// or smaller ones are tried to shrink one that fails. A seed stands for the numbers that a
// generator draws from it. See choices.go.
//
// # Invariants
//
// What must hold is written down without the code that it is about: each file
// invariant_*.go keeps a plain model of one promise, fed with what processes send, what
// members and hub execute, and what processes have been told.
package simulation
