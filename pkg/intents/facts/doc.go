// Package facts tells the process that corrects a fleet what those know that judge its members: whether a member may be
// written and is within reach, the health of what was written, who manages a target, what a target is now, and how many violations there are.
//
// # What is not known
//
// holds writes back: a member is held or away, health is Unknown, ownership is Unknown, members that nobody can be asked
// about count as away, targets are unresolved, and verdicts are nil. There is no answer that stands for another one.
//
// # How old an answer is
//
// Facts about members are few and small: a [Client] asks each process for all of them every [Interval], and they count
// for [MaxAge] from when they were asked for, by one clock. Health, who manages a target and what it is are asked at the time, many
// at once; who manages targets counts as long as facts do.
//
// # Concurrency
//
// Client.Run asks, and joins its goroutines. Methods never wait for it: those about members answer from what was asked;
// Healths, Health, Owner and Resolve ask within [AskTimeout]. A process that has not answered in time is not asked again at
// once, so that one that is lost costs little.
package facts
