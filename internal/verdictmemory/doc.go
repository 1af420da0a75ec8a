// Package verdictmemory keeps on disk what of verdicts cannot be evaluated again: when each violation was
// first seen, and quarantines. A process recalls what the one before knew of a subject when a policy evaluates
// it for the first time; what is left once all that this policy reads was read is forgotten. A violation that
// is not found by a verdict that is not Known keeps its time until the verdict is.
//
// Where several processes share a fleet, they tell each other what they know of what another one comes to judge.
//
// Nobody waits for the disk. What cannot be written is written again from the newest state; meanwhile the
// log says that it is not kept.
//
// Records of violations are digests and times, in a file that is appended to, and rewritten when most of it
// is outdated. It is not synced with each record: over a loss of power the last ones may be lost, and those
// violations are seen for the first time again.
package verdictmemory
