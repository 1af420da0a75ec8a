// Package notify tells other systems what has happened to federator's corrections: halts,
// plans that wait, approvals, stops and rollbacks, as CloudEvents to a webhook.
//
// # What is told
//
// A [Source] lists the [Fact]s that the hub shows now. A fact is told once it is listed for
// the first time; one with an Until is told again when it is no longer listed. What is told
// is an [Event] in the structured mode of CloudEvents 1.0, signed as Standard Webhooks
// (https://www.standardwebhooks.com) says: header webhook-signature is an HMAC-SHA256 over
// id, time and body. The id is that of the event, made of the UID of the object concerned and
// of what happened to it, so a receiver that has seen an id before may ignore the event. Keys
// are read for each event, so that they can be replaced; an event has a signature with each.
//
// # What a crash costs
//
// Before an event is sent it is written to a ConfigMap on the hub, together with what is
// known to have been told; after the receiver has answered 2xx it is removed there. A process
// that ends in between leaves the event to its successor, which sends it again with the same
// id: nothing is lost, and duplicates are recognised. Facts that come and go while no process
// leads are told only if the source still lists them: objects that federator writes keep a
// history for that. While a receiver is away, what is new is stored all the same.
//
// # Concurrency
//
// Run owns its goroutines and joins them. Each receiver has a ConfigMap and a goroutine of
// its own, so that one that does not answer delays no other. Within a receiver, events are
// sent one after another in the order in which they happened. Trigger does not block.
//
// # Trade-offs
//
// A receiver that refuses an event delays the later ones, until the event has waited for a
// week: order is kept rather than throughput. What waits is bounded; while it is full, new
// facts stay with the source, and of rollbacks, of which there may be very many, no more than
// half of it. There is no batching: a storm of violations makes no more events than there are
// halts.
package notify
