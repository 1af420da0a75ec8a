// Package clusterinformers follows the member clusters of a fleet and keeps an
// [aggregate.Index] equal to what they hold.
//
// # Members
//
// A [Source] finds members: [NewClusterAPI] on a management cluster,
// [NewContexts] in kubeconfigs, [NewHub] the hub itself. A kubeconfig is
// hostile input: what it may not ask for is a [Refusal], and so are addresses
// that are found forbidden when they are dialled. [Manager.Members] and
// [Manager.Ready] say how it stands with each.
//
// A member is in the index as soon as a source names it, without scopes while
// it has not been reached: what it has is not known, and who reads the whole
// fleet must see that. Only a Cluster whose control plane has never been up
// does not belong to the fleet yet. A member of a kubeconfig is identified by
// the UID of its kube-system, which takes reaching it; until then it has none.
// When it is identified it stays the member that it is, and keeps the empty UID
// in the index: to leave and join anew would be two commits, with a fleet
// without it between them. A UID that is another than one that was known makes
// another member, and the former leaves first.
//
// # Kinds
//
// Which kinds are followed is for the rules of [Options] to say, and for
// [Manager.Want], which names what policies read. A kind that is named by one of
// them has a scope in every member that has been reached: NotServed, known to be
// empty, where the member does not serve it; Unknown where that was not asked
// since, or where the server of its group has not answered.
//
// # From a member to the index
//
//   - Discovery, asked now and then and soon after a CustomResourceDefinition or
//     APIService has changed, says which kinds there are. A kind is held at one
//     version in the whole fleet where all members serve one in common; after it
//     has changed, it changes again only once that has lasted for a while.
//   - For every kind of a member one client-go Reflector lists and watches. Its
//     store is the index: there is no second copy. Below it, the bytes that the
//     member sent become index entries without an object in between, from
//     protobuf where that loses nothing and from JSON otherwise.
//   - A connection that breaks costs no list: the watch goes on at the same
//     resourceVersion, for all kinds of the member as soon as one probe has
//     found it back. Only a resourceVersion that is too old lists again, and
//     only the kind concerned. Until then what is held stays, Stale.
//
// [Manager.Review] and [Manager.Writer] lend federator's access to members to
// who asks what somebody may do there, and to who writes. A member that is
// ReadOnly, as the hub is, is never lent for writing, nor is one whose Cluster is
// paused: it is read all the same.
//
// # Concurrency
//
// The methods of [Manager] may be called from any goroutine; Run once. A member
// has two goroutines of its own, one for its connection and one that decides
// which kinds are followed, and a kind has two: one reads and decodes, the
// Reflector's commits. Run returns when all have ended. A panic in one of them
// is logged, counted and shown, and what failed is started anew; nobody else
// notices. So it is with a member that is slow, dead, huge or hostile: it has
// its own goroutines, its own [Budget], and no more than a few of the slots for
// first lists, which it loses when it stalls.
//
// # Trade-offs
//
// Watches are not shared between members, nor kinds between watches: a fleet of
// a thousand members of sixty kinds has sixty thousand streams, over one
// connection a member. Two goroutines for each, rather than one, overlap
// decoding with committing, so that a burst becomes few commits. A watch with
// more than a thousand events a second is read every two milliseconds, which
// costs a sixth less than reading each event as it comes. A scope that has
// spoken JSON once stays with it until its member joins anew: what made it
// change is likely to come again.
package clusterinformers
