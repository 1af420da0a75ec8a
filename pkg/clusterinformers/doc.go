// Package clusterinformers keeps an [aggregate.Index] equal to what the member
// clusters of a fleet hold.
//
// # Members
//
// A [Source] finds members; package source has those that the binary uses. A
// kubeconfig is hostile input: what it may not ask for is a
// [connection.Refusal], and so are addresses that turn out to be forbidden when
// they are dialled. [Manager.Members] and [Manager.Ready] report the state of
// each member.
//
// A member that is out of reach may have an agent, which opens the connections: [Agents] has them, already
// verified, and from there on it is a member like any other.
//
// A member is in the index as soon as a source names it, without scopes until
// it has been reached: what it holds is not known, and readers of the entire
// fleet must see that. Only a Cluster whose control plane has never been up does
// not belong to the fleet yet. A member of a kubeconfig is identified by the UID
// of its kube-system, which takes a request to it; until then it has none. When
// it is identified it stays the same member and keeps the empty UID in the
// index: removing and adding it would be two commits, with a fleet without it
// in between. A UID that differs from a known one makes another member, and the
// former is removed first.
//
// # Kinds
//
// Which kinds are held follows from the rules of [Options] and from
// [Manager.RequireKinds], which names what policies read. A kind that one of
// them names has a scope in every member that has been reached: NotServed, known
// to be empty, where the member does not serve it; Unknown where discovery has
// not run since, or where the server of its group has not answered.
//
// # From a member to the index
//
//   - Discovery runs periodically and soon after a CustomResourceDefinition or
//     APIService has changed. A kind is held at one version in the whole fleet
//     where all members serve one in common; after a change, the version changes
//     again only once the next one has lasted for a while.
//   - For every kind of a member a state machine of its own lists and watches (package
//     listwatch), as client-go's Reflector does, but without goroutines: it is a task that
//     is run when something has come for it. The bytes that the member sent become index
//     entries without an object in between, from protobuf where that loses nothing and from
//     JSON otherwise. There is no second copy.
//   - A connection that breaks costs no list: the watch resumes at the same
//     resourceVersion, for all kinds of the member as soon as one probe
//     succeeds. Only a resourceVersion that is too old relists, and only the kind
//     concerned. Until then the objects stay, Stale.
//
// [Manager.Review] and [Manager.Writer] give callers federator's access to
// members, to review what a user may do there and to write. A member that is
// ReadOnly, as the hub is, is never written to, nor is one whose Cluster is
// paused: both are read like any other.
//
// # Audits
//
// A watch is trusted, and checked. An auditor compares each scope with what the member lists at the
// resourceVersion up to which the scope has applied its events (package audit): metadata, and of some
// objects the content. What differs is listed again, counted by cause, and reported to [Options].OnLoss.
// Nothing that is in flight differs: what may be is looked at again when a bookmark has said that it is
// not. What is left out on purpose (by rules, or as no API server would admit it) does not differ
// either. Of kinds of which only the newest is kept, only what is held is compared.
//
// A scope that continues what an earlier process has held, or another one that had not proved it either, is audited at once, and the member is not
// written to before ([Manager.CheckContact]). One that cannot be audited, as the member has forgotten
// the resourceVersion again and again, is listed instead.
//
// # Concurrency
//
// The methods of [Manager] may be called from any goroutine; Run once. A member
// has three goroutines of its own: one for its connection, one that decides
// which kinds are held, and its auditor. Kinds have none: as many workers as there are processors run
// those that have something to do, by turns of a member, so that one whose kinds change
// without pause takes no more turns than any other. Requests that wait for an answer
// have a goroutine until they have it, a few a member at a time. Run returns when all have
// ended. A panic in one of them is logged, counted and shown, and what failed is
// restarted; no other member is affected. The same holds for a member that is slow, dead,
// huge or hostile: it has its own [Budget], and at most a few of the slots for large
// initial lists, which it loses when it stalls.
//
// # Trade-offs
//
// Watches are not shared between members, nor kinds between watches: a fleet of
// a thousand members of sixty kinds has sixty thousand streams. What has come of a
// watch is decoded, applied and committed in one turn, so that a burst becomes few
// commits. A watch with more than a thousand events per second is read two milliseconds
// after something has come, which costs a sixth less than reading each event as it comes.
// A scope that has switched to JSON stays with it until its member is added again: the
// reason is likely to recur.
package clusterinformers
