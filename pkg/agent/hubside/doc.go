// Package hubside is where the agents of members connect to federator: it lets them join, keeps their certificates
// short-lived, and has their connections for what reads the members.
//
// # Connections
//
// There is one listener, of TLS 1.3. Connections are of two kinds, which ALPN tells apart. Over the ones the agent sends a
// few requests by HTTP/1.1: to join with a token, to renew its certificate, and to ask whether it is accepted. Over the
// others the agent serves HTTP/2 and federator sends the requests: [Server.DialAgent] hands those out, one at a time, and
// the agent opens another one for each that is taken.
//
// # Who an agent is
//
// A certificate is of one Member object, by namespace, name and UID, and for nothing else than to connect here. What it
// opens is a way for federator to the agent, not from it: a stolen certificate reads nothing. When the Member is deleted,
// also to be created again, or has no agent any more, its connections are closed at once and no more are taken.
//
// A token is used up, by one key, before a certificate is made for it. The hub has its hash in one Secret, and compares the Secret's
// resourceVersion as the token is taken out: of all who use one token at once, at any process, one gets a certificate.
//
// # CAs
//
// The CAs are pairs of certificate and key in a Secret that only federator reads. All are trusted. The newest signs the
// certificates of agents, and the oldest federator's own, since that is the one that every agent knows: agents get all of
// them when they join and when they renew. So a CA is added, a day later all agents have it, and the old one can be
// dropped, which ends the connections that it has verified. PublicSecret names first the one that serves, for tokens.
//
// # Concurrency
//
// Methods of [Server] may be called from any goroutine; Run once. A connection that is waiting to be taken has a
// goroutine, one that is taken none of this package's. Everything is bounded: handshakes under way, requests, connections
// of an agent and of all; what is beyond is refused at once, and agents come again at times that differ. Each of these
// bounds has one for each that might take it all: an address, a Member. What strangers may have is apart from what the
// agents of Members have, and they have the hub asked for nothing but one Secret, by all at once.
package hubside
