// Package sim serves many cheap Kubernetes API servers from one process.
//
// A [Fleet] holds members; each [Member] is a real HTTPS and HTTP/2 server on a
// loopback port of its own, with its own CA, credentials, kinds, objects and
// resourceVersions. It speaks what client-go's reflector, informers, typed,
// dynamic and discovery clients speak: LIST with limit and continue, WATCH from a
// resourceVersion, WatchList, bookmarks, 410, label and field selectors, protobuf
// and JSON, CustomResourceDefinitions that come and go, simple writes. It does not
// default, validate, convert, admit, serve Tables or run subresources: use
// test/kube for those. One contract test holds it to a real kube-apiserver.
//
// # Memory
//
// An object is held once, encoded: protobuf for built-in kinds, JSON for custom
// ones; JSON of built-in kinds is made on demand. Objects that come from a
// [Source] are not held at all but made for each answer, so that half a million
// pods cost about as many map entries. A write keeps the older body until the
// history window passes it.
//
// # Concurrency
//
// All methods of Fleet and Member may be called from any goroutine. One mutex per
// member guards its objects, and nothing is encoded or sent under it: a LIST works
// on a copy-on-write copy, a WATCH reads the history. A watch that falls behind
// the history window is closed, as a real server closes it. [Fleet.Close] returns
// when every goroutine of the fleet is gone.
//
// # Trade-offs
//
// A resourceVersion LIST at an exact older version is the present one with the
// history undone, so it costs what has changed since, and 410 comes exactly when
// the history does not reach. Nothing is ever stale: resourceVersion "0" answers
// with the present.
package sim
