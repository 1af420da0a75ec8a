// Package shards lets several processes share a fleet: it decides which of them holds which member, and tells each.
//
// # Who knows what
//
// Each process has a Lease on the hub, with its epoch and address, renewed every 5 s and gone after 15 s, after 10 s where its
// address refuses connections, or at once when the process ends in order. The leader (another package's election says who) asks each process over HTTPS what it holds, what of that is
// ready, and what it costs, and writes the map: one ConfigMap with all members and who judges, follows and is about to take over
// each. The map has a version that only grows and is written by compare-and-swap: of two that believe to lead one writes. All
// others follow it. A process that does not see the hub goes on with the map that it has; it takes nothing new, and nobody waits
// for it.
//
// # How a member moves
//
// The next process joins (it takes over what the judge holds, or lists it, and nothing is asked of it), reports that it is ready, and is the judge in the next
// map. The one before stops to judge when it sees that map, and reads on until Options.LetGo says that what it knows of the member otherwise is
// as good. So reads never miss. Only where the judge was lost the next one begins with nothing, unless there is a standby.
// Two processes may judge a member for the moment that one of them has an older map: which one counts the map says, and what
// they say is of the same objects.
//
// # What is where
//
// [Shards.Sources] wraps the sources of members: the manager of this process sees those that it holds, with their roles, and
// Options.Fleet is told of all. [Shards.TLS] is for the listener of peers, on which [Shards.Handler] answers the leader;
// [Peer].Client reaches one peer and no other. The CAs of peers are in a Secret that the first process fills; the leader is not
// needed for that. Agents of members have other CAs, which open nothing here.
//
// # Trade-offs
//
// Hub writes do not grow with the fleet: a Lease and a map every 5 s at most, and the map only where it changes. For that what is not urgent (a
// process that became ready, a move) waits for up to 5 s. A map that is not understood, be it of a newer version or of somebody
// else, stops nothing: members stay where they are until it is deleted.
//
// # Concurrency
//
// Methods of [Shards] may be called from any goroutine; Run once, and Sources once before it. The functions of Options are called
// without a lock held, Fleet by one goroutine, the others by several.
package shards
