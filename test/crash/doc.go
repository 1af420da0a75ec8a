// Package crash kills correcting processes at random points, and compares what they have
// recorded with what the members' API servers have: no write is done twice, none is
// forgotten, and what holds writes back is held by the next process as well.
//
// The processes are this test's binary. Each has the parts that federator has: a
// Dispatcher that records on a real hub, leader election there, and verdicts from watches
// of real members. Some leaders are only frozen until another process leads, and then
// continue. Only the policies are the test's own:
//
//   - one without limits: its Actions are the writes in the member's audit log, one for one.
//   - one that its limit halts, again and again. Its halt and the Plan of what waits stay what
//     they are over kills, by the hub and by its audit log, until somebody acknowledges that
//     halt; meanwhile nothing is written, and never more than the limit and what was in the
//     Plans that were acknowledged by then.
//   - one that is rolled out in two waves that soak, again and again. By the audit logs of both
//     members, nothing is written to the second before all of the first is written and its soak
//     has passed.
//   - one with a limit over 720 hours that it has soon used up. Each time one more object is
//     withdrawn and the policy is changed, which ends the halt, so that nothing but the
//     Actions says what was written; no more is written, over all kills.
//
// mutations.sh applies each defect of testdata/mutations to a copy of the tree, and prints what
// a short turn finds.
//
// `make crash` runs it at length, `go test` a little of it. KILLS, FAILOVERS and
// CORRECTIONS set how much, SEED repeats the random points.
package crash
