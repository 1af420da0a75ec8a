// Package plans makes Plans of the targets that a policy would change, and reads the targets of
// Plans again. Its functions are pure: they talk to nobody, read no clock and change nothing that
// they are given.
//
// # Digests
//
// A digest is the SHA-256 of a word that says what is hashed, and of its fields, each after its
// length as an unsigned varint (as in encoding/binary): no two lists of fields give the same
// bytes. That of a Plan's targets is over their number and, in order, each one's member, UID of
// the member, kind, API version, verb, namespace, name, UID, digest of the remedy, and whether it
// could be rolled back. What is shown besides (why it could not, a diff, the answer to a dry run)
// may differ between two attempts to make the same Plan, and is in no digest. The hash of a Plan
// is over the policy, the purpose with what it names, and the digests, as JSON.
//
// # Concurrency
//
// All functions are safe for concurrent use. Values are plain data.
//
// # Trade-offs
//
// Targets are text in a part: what is counted as its size is that text as a JSON string. A Plan of
// 100,000 targets with long names has some 50 parts. A diff is kept of 20 targets only, those
// spread over all that have one.
package plans
