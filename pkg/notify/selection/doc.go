// Package selection says which transitions of the history a Notification selects.
//
// A [Selection] is made of [Rule]s. A record is selected if one rule matches it, and a rule
// matches if all that is set in it does. What a FleetPolicy's own list of Notifications asks
// for comes on top: its violations, its Actions and what becomes of the policy itself. A
// record of type Gap is always selected: a receiver must know that something is missing.
//
// Exempt violations are silent. One that becomes exempt while it is open is selected as if it
// closed, and one that ceases to be as if it opened: [Transition] says so to the receiver, too.
//
// # Concurrency
//
// A Selection is immutable. Any number of goroutines may use it, if they may call the
// functions of its Options.
//
// # Trade-offs
//
// Rules are compiled in blocks of 64: for each field of a record a block says which of its
// rules the value matches. Names are looked up in a map; patterns are compared one after
// another, and only those of rules that match so far. Labels of a member are looked up last,
// if it depends on them.
//
// Records of Actions and of policies have no severity: a rule with severities selects
// violations alone.
package selection
