// Package wire has the frames that processes exchange, and the digests by which they know that they have the same.
//
// A frame is its type in a byte, the length of its payload as a uvarint, and the payload. Payloads are fields one after the
// other, texts after their lengths, and no JSON but where a frame is rare: what an object is costs no parsing twice, its
// bytes are what is hashed, and how long a frame is to be is known, and bounded, before it is read. Package exchange says
// in which order frames come.
//
// # Digests
//
// That of a record is a hash of its payload, but for the resourceVersion: objects change all the time in what nobody reads,
// of which nothing is told. A scope's is one of what is said of the scope and of the sum of its records';
// a member's is the sum of its scopes' and a hash of what is said of the member. Sums do not depend on an order, and are
// kept as records change: who has a [Sum] has 16 bytes for each of them, under a hash of its name. They are against
// errors, not against a peer, who could as well say something else: peers are believed, since TLS says who they are.
package wire
