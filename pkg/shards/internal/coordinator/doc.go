// Package coordinator decides what the map of a fleet says next. It is what the leader thinks, and nothing of how it knows or
// writes: a step is a function of what is known (Leases, reports, the sources' members, the map, the time) and of what was
// measured before.
//
// # What a step does
//
// Members come and go as the sources say. Where a judge is gone its standby takes over at once, or the process that was about to;
// otherwise the member is placed again. A process that has read a member that it is to take over becomes its judge, or standby, in the
// next map; the one before lets go after it has seen that map. A few members move where that pays, so many at once that the
// others are not disturbed. A process that does not manage to read a member in time is given up for it.
//
// # What it relies on
//
// The map is written by compare-and-swap, so a step that knew an old map writes nothing. Reports are of an epoch: what the
// process before has said counts for nothing. A version is greater than all that any living process has applied, also after the map
// was deleted.
package coordinator
