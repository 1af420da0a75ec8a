// Package agent runs in a member that federator cannot reach. It opens connections to federator, over which federator
// then asks the member's API server, within what the agent's own credentials may do.
//
// # Connections
//
// An [Agent] dials each process of federator by mTLS, and serves HTTP/2 on what it has dialled: there is no protocol of
// its own, so that lists, watches and writes have the flow control, resets and pings of HTTP/2, and federator follows the
// member as it follows any other. As soon as a connection is taken into use the agent opens the next, up to a few, since
// one has no more than a thousand streams. One that is lost is dialled again, at times that differ between agents.
//
// # Requests
//
// Between federator and the API server is a proxy that lets through what federator needs, by method and path: discovery,
// reads, lists and watches, creating, patching and deleting objects, and SubjectAccessReviews. All else is refused,
// whatever the credentials of the agent may do: subresources such as exec, log, token and eviction, upgrades and
// impersonation, and whatever concerns the Secrets that are the agent's own. Credentials that a request has do not pass,
// and the hub has none of the member's.
//
// # The link
//
// What federator reads is sent in zstd, a watch with one window that lasts as long as it is busy, so that an object that
// changes, or is like another, costs its difference. A quiet watch has no encoder: the agent's memory depends little on
// the number of watches. Bookmarks of which nothing depends for now are gathered, and watches last for an hour.
//
// # Joining
//
// The agent joins with a token that is for one member, once. The token also says by which CA federator is verified before
// it is trusted with anything. The agent makes its key, which never leaves it, and gets a certificate that it renews
// before two thirds of its life are over, by the time that has passed since it got it. Key and certificate are in a [Store].
// Where federator takes the certificate no longer the agent joins again, if there is a token that it has not used, or ends.
//
// Package hubside is the other end.
package agent
