// Package external holds documents from outside the fleet as policies read them: data.fleet.external[source][key].
//
// Documents are those of all sources at one time. Each has the newest content that was valid, and perhaps a Problem: why
// that is not known to be so now. As with scopes, what policies see is the content that is there, and a verdict that has read a
// document with a Problem is Unknown. So is one that has read a source which does not exist: that its documents are
// absent would be a guess. A key that a source does not have is absent.
//
// Decode reads the text of a document, which is hostile.
//
// # Concurrency
//
// Documents, a Schema and what Decode returns are immutable.
//
// # Trade-offs
//
// Contents are decoded once, when they come, and held decoded: about six times their text. A document that is an object is
// compared field by field, so that who has read one field of it is not concerned by a change of others.
package external
