// Package sinks carries messages to other systems: CloudEvents to a signed webhook or to a stream of NATS
// JetStream, alerts to Alertmanagers. What is worth a message, and keeping it until it is taken, is its caller's.
//
// # What is delivered
//
// [Webhook] and [NATS] take messages in their order, and say how many of them, from the first, are known to be
// taken: the caller sends the rest again, with the same IDs. Delivery is therefore at least once. A webhook's
// receiver knows a message by header webhook-id; a stream drops one that it has had within its duplicate window
// (two minutes, unless it is configured) by Nats-Msg-Id. [Alertmanager] has alerts with times instead: one that
// is posted again replaces itself.
//
// A webhook gets one request for each message, signed with all keys as Standard Webhooks says. A stream gets up
// to 256 messages before the first is acknowledged; the subject is made of the type, dev.federator.a.b going to
// <Subject>.a.b. Where one of them is refused, those behind it may be in the stream before it is sent again.
//
// # What is reached
//
// All connections are made by Dial, with names that it resolves: it decides which addresses may be reached. There
// is no proxy of the environment, no redirect is followed, and servers that a NATS cluster tells of are not
// dialed. Credentials are sent over TLS, or to this machine. Errors show neither credentials nor the query of a
// URL, and what servers say is shown to a bound.
//
// # Concurrency
//
// All may be used by any goroutine. Send and Post end with their context; a NATS sends one batch after another.
// Close returns when connections are closed; the caller closes what it has made. The goroutines of a NATS
// connection are the library's, and end with it.
//
// # Trade-offs
//
// A connection to NATS that has failed in any way is closed, and the next Send dials again: that costs a handshake
// for each failure, and there is nothing left in flight, no buffer that is sent later, and no dialing between
// Sends. There are no retries here: how long to wait is what the caller decides, which has [RefusedError.RetryAfter].
package sinks
