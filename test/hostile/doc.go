// Package hostile looks for ways in which one member, one object or one reader harms
// others: a generator, driven by a seed, that runs the federator command beside a real
// hub and attacks it.
//
// # The attacks
//
// A [Proxy] stands before an API server, real or simulated, and changes its answers: what is
// served, versions and sizes, objects and their metadata, pages and
// their order, watch events and their scopes, resourceVersions; it cuts,
// slows and floods. Below, it changes the frames of HTTP/2: some lie, windows starve, headers
// grow, streams never end. What it sends is put together from the [Classes], each with a name
// and a weight, so that one can be run alone:
//
//	make hostile HOSTILE=10m HOSTILE_CLASSES=kind-with-dots,plural-of-another
//
// Readers with random grants ask at random, well-formed and malformed, while the
// members attack; one of them has a habit: it holds all watches it can get, goes on watching
// when its grants are taken back, floods the hub with reviews, asks for YAML or Rego at
// once. Others change policies, libraries and labels while the engine is kept busy.
//
// # What must hold
//
//   - the honest members' answers equal what these members serve;
//   - no answer holds what its reader has no grant for: every object of an honest member
//     is marked by member, kind and namespace;
//   - verdicts on honest members equal a full evaluation of what they serve alone;
//   - the heap after a collection, less that of the process without members, stays within
//     one and a half of what is accounted, a fixed allowance, and what policies may hold;
//   - a list has objects of its own kind, and what a member serves under another kind's
//     resource is named;
//   - the honest members are fresh, and what an attacker that sends nothing false of its objects
//     is said to be is so;
//   - what is logged of an attack is bounded;
//   - a body that is no list and no watch is not read beyond its bound;
//   - what is true but large, slow or old is held in the end, Events within their share;
//   - a member that attacks no more is held as it is, and evaluated as such: what a quarantine held
//     back, too, and objects that nobody has written since the server was upgraded;
//   - changes of policies, and members that rejoin, are evaluated however busy the engine is;
//   - goroutines and descriptors come back to where they were;
//   - the process lives, answers in bounded time, and ends on a signal.
//
// A failure prints the seed, the step, and what led there. A seed that has found
// something becomes an entry of the table in found_test.go, which is played first,
// always, and is all that a run without HOSTILE plays.
//
// # Determinism
//
// What is attacked, and how, follows from the seed and the number of the step alone: a
// change of an object is drawn from the seed, the step and the object. Timing does not
// follow from it.
package hostile
