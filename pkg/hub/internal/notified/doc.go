// Package notified knows which FleetPolicies name which Notifications, as far as the ceilings of their sources allow it.
//
// An [Index] is safe for concurrent use. Reading it takes no lock: what is read is never changed, but replaced whole. It is
// set from all FleetPolicies each time, which costs little where few of them name a Notification.
package notified
