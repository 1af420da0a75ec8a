// Package webui serves the web UI: its built files, the sessions of its users, and a relay of
// their writes to the hub.
//
// A UI is a queryapi.UI. Reads of its pages are requests to the query API, with a session in
// cookies; writes are a fixed list of requests (see the paths below /ui/relay/) that it sends to the hub with
// the caller's own token, so that the hub's RBAC decides and its audit log names the person. It has
// no credentials of its own.
//
// A session is a bearer token, pasted or from OIDC, sealed into cookies: nothing of it is kept
// here but the key, so that replicas with the same key share sessions.
package webui
