// Package crash kills processes that correct, at random points, and compares what they
// have recorded with what the member's API server has: no write is done twice, and
// none is forgotten.
//
// The processes are this test's binary. Each has the pieces that federator has: a
// Dispatcher and the journal of a real hub, leader election there, and verdicts that
// follow a real member by a watch. Some leaders are only frozen until another process
// leads, and go on. What is left to the test is which objects violate.
//
// `make crash` runs it at length, `go test` a little of it. KILLS, FAILOVERS and
// CORRECTIONS say how much, SEED repeats the random points.
package crash
