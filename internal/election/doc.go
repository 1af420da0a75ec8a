// Package election elects the one process that may write to members, by a Lease on the hub.
package election
