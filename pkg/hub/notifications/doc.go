// Package notifications runs the Notifications of the hub: it sends what each selects of this process's history, or the alerts that are open, to
// its sink, and writes how far that has come into its status.
//
// # Who sends
//
// Of processes that have the fleet alone the one that leads sends, from its own history. Of those that share it each sends what it has
// recorded: of the members that it judges and, where it leads, of the hub. Options.Sends says when that is. The status has an entry
// for each; it is what the next process goes on from, which has another history (package delivery).
//
// # Alerts
//
// Alertmanager is sent what is open now, not what has happened: alerts of package alerts, again and again, each valid for a while. So
// nothing is lost by a crash, and what nobody sends any more ends by itself. That an alert has ended is only said by a process that alone may have a
// part of it.
//
// # Secrets
//
// Secrets are read from federator's namespace, once every half a minute: what replaces a key is in use soon.
//
// # Concurrency
//
// Run owns an informer, and a goroutine for each Notification: one whose sink does not answer delays no other, and one that panics is
// begun again after a while. The hub is asked for several things at once. Whether this process
// sends is asked every five seconds.
//
// # Trade-offs
//
// A status is written every half a minute, or ten seconds after a condition has changed at the latest. Another process that takes over after a crash sends again what was sent since; the
// messages of single transitions have the same IDs then, those of collections have not.
package notifications
