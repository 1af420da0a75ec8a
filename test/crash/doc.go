// Package crash kills correcting processes at random points, and compares what they have
// recorded with what the member's API server has: no write is done twice, and none is
// forgotten.
//
// The processes are this test's binary. Each has the parts that federator has: a
// Dispatcher that records on a real hub, leader election there, and verdicts from a watch
// of a real member. Some leaders are only frozen until another process leads, and then
// continue. Only the policy is the test's own.
//
// `make crash` runs it at length, `go test` a little of it. KILLS, FAILOVERS and
// CORRECTIONS set how much, SEED repeats the random points.
package crash
