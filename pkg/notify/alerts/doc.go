// Package alerts says which alerts are open now, for Alertmanager: the violations of a state
// of the policy engine, in groups, and what goes on with policies, such as a halt.
//
// Alerts are levels, not transitions: who sends them says again and again what is open,
// and what is no longer said resolves. So nothing here is remembered, and after a restart or
// a failover the next process says the same.
//
// # What counts
//
// A violation counts unless it is exempt, if the rules of the Notification select it as one
// that opens. One whose verdict is Unknown counts, and so does one that an evaluation which
// fails now hides: what cannot be judged has not been corrected. The summary says how many of
// these there are.
//
// # Concurrency
//
// An [Alerts] is immutable; any number of goroutines may use it.
//
// # Trade-offs
//
// Open walks all findings of a state, at less than a microsecond each, rather than keeping
// groups up to date with its changes. A violation that is no longer found by a verdict which
// has turned Unknown is not known to a state any more, and does not count: the history, which
// remembers, does not close it then.
//
// There are at most 1,000 alerts. If there are more groups, those that are most severe and
// open longest have an alert each, so that what is new does not end an alert that is as
// severe, and one alert tells how many others there are.
package alerts
